"""An evaluation whose second rank cannot grade; test_evaluation_run starts it under a launcher with its options."""

import os
import sys

from agpo_core.evaluation import evaluation_run


def main(options: list[str]) -> None:
    get_task = evaluation_run.get_task

    def failing(name, *rest):
        task = get_task(name, *rest)
        if os.environ["RANK"] == "1":
            task.grade = lambda problem, completion: 1 / 0
        return task

    evaluation_run.get_task = failing
    try:
        evaluation_run.main(options)
    except SystemExit as end:
        print(f"rank {os.environ['RANK']} ended with {end.code}", flush=True)
        os._exit(0)  # with another status the launcher would end the other rank, which must end by itself


if __name__ == "__main__":
    main(sys.argv[1:])
