"""Search a shop's documents with Elasticsearch, or OpenSearch."""
