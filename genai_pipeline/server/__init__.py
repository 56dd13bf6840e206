"""The HTTP server: OpenAI's and Anthropic's interfaces over one or more loaded packages.

``app.build_app(config)`` is the ASGI application, ``run.serve(config)`` runs it. Routes translate and nothing else:
``asking.ask`` takes a request to a model and gives its events; whatever a request holds is let go when it ends.
"""
