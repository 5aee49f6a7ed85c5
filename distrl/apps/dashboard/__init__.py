"""A web page that shows live and finished runs and controls live ones.

`distrl dashboard` and `distrl train --dashboard` start it; nothing else imports it. It reads run directories and Redis
as any other reader does and changes a run only by requests, as an operator would. No training depends on it, and no
other package knows Starlette or uvicorn.
"""
