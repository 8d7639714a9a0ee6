"""What else could be done with a robot's data: learning methods that an experiment compares with.

All of them learn from the reward of the simulator behind the robot, which a real robot does not
have, so they are given more than the method they are compared with.
"""
