"""The site's durable state: the database, the files of local steps, and the ledger of what left the site."""
