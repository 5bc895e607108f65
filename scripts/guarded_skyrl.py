"""SkyRL's server of the Tinker API, which rejects requests without the key of EDITRL_SERVER_TOKEN (x-api-key), except for /api/v1/healthz."""
import os
import runpy
import secrets

import uvicorn


class Guard:
    def __init__(self, app):
        self.app = app
        self.expected = os.environ["EDITRL_SERVER_TOKEN"].encode()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan" or scope.get("path") == "/api/v1/healthz":
            return await self.app(scope, receive, send)
        given = dict(scope.get("headers") or []).get(b"x-api-key", b"")
        if secrets.compare_digest(given, self.expected):
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"detail": "Invalid API key"}'})


serve = uvicorn.run
# A line for each request would hide the server's own messages.
uvicorn.run = lambda app, **options: serve(Guard(app), **options, access_log=False)
runpy.run_module("skyrl.tinker.api", run_name="__main__", alter_sys=True)
