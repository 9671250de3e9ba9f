"""One spider for each way of paging, and one for a public practice site."""
