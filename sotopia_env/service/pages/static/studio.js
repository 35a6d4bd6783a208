// What pages need beyond htmx. Every page works without it, except for live updates.
