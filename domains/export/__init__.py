"""Export documents as files with Power BI, whose exports are jobs that take their time."""
