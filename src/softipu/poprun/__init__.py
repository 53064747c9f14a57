"""`poprun`: a program in many processes, here and on other hosts, with the IPUs they share.

poprun plans, makes the partition and supervises; one agent on each host starts the instances with
PyTorch's elastic launcher and hands on what they print. Nothing here knows any framework's IPU API.
"""
