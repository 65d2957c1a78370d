-- The scripted model that is built in: it needs no key and no network.
return { base_url = "mock://", auth = "none", dialect = "chat", default_model = "demo" }
