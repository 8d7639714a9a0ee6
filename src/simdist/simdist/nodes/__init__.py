"""The nodes of the running graph: thin shells that convert messages and call the core.

Importing this package imports nothing of ROS.
"""
