"""Write records in Salesforce, once and never over somebody else's change."""
