"""`ros2 bag`: record, describe and play bags (MCAP)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from simdist.local_ros.options import add_group, add_verb, positive_float
from simdist.local_ros.verbs import bag_info, bag_play, bag_record


def add_command(commands: Any, summary: str) -> None:
    verbs = add_group(commands, "bag", summary)
    record = add_verb(verbs, "record", "Record ROS data to a bag", bag_record.record)
    record.add_argument("topics_positional", metavar="topics", nargs="*", help="topics to record")
    record.add_argument("--topics", nargs="+", default=[], help="topics to record")
    record.add_argument("-a", "--all", action="store_true", help="record all topics")
    record.add_argument("-o", "--output", type=Path, help="directory of the bag to create")
    record.add_argument("-s", "--storage", choices=["mcap"], default="mcap", help="format")
    record.add_argument("--include-hidden-topics", action="store_true")
    info = add_verb(verbs, "info", "Print information about a bag to the screen", bag_info.info)
    info.add_argument("bag_path", type=existing_bag, help="Bag to open")
    play = add_verb(verbs, "play", "Play back ROS data from a bag", bag_play.play)
    play.add_argument("bag_path", type=existing_bag, help="Bag to open")
    play.add_argument("-r", "--rate", type=positive_float, default=1.0, help="speed factor")
    play.add_argument("-l", "--loop", action="store_true", help="start again at the end")
    play.add_argument("--start-offset", type=float, default=0.0, help="seconds to skip")
    play.add_argument("--topics", nargs="+", help="play only these topics")
    play.add_argument(
        "--clock",
        type=positive_float,
        nargs="?",
        const=40.0,
        metavar="HZ",
        help="publish the time of the bag on /clock (default: 40 Hz)",
    )


def existing_bag(text: str) -> Path:
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"Bag path '{text}' does not exist!")
    return path
