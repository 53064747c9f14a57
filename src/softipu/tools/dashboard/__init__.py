"""`softipu dashboard`: a live web page of the virtual IPUs, their leases and what they do.

Modules in the order that data takes: collector → snapshot → history → feed → server → static/.
Nothing here changes state; it reads what `softipu.devices` tells everybody.
"""
