"""Job submission verifiers in Python: make a subclass of Verifier and call its main().

    import jsv

    class Site(jsv.Verifier):
        wants_environment = True

        def verify(self, job):
            if "h_rt" not in job.list("l_hard"):
                job.add("l_hard", "h_rt", "3600")
                return job.correct("the limit is an hour")
            return job.accept()

    Site().main()
"""

import sys


class Job:
    """A job: its parameters and variables, and what becomes of it."""

    def __init__(self, say):
        self._say = say
        self.params = {}
        self.env = {}
        self.is_over = False

    def set(self, name, value):
        """Sets a parameter."""
        self.params[name] = str(value)
        self._say("PARAM %s %s" % (name, value))

    def delete(self, name):
        """Removes a parameter."""
        self.params.pop(name, None)
        self._say("PARAM %s " % name)

    def list(self, name):
        """A list parameter such as l_hard as a dictionary."""
        items = [item for item in self.params.get(name, "").split(",") if item]
        return dict(item.partition("=")[::2] for item in items)

    def _set_list(self, name, items):
        self.set(name, ",".join("%s=%s" % (k, v) if v else k for k, v in items.items()))

    def add(self, name, key, value=""):
        """Sets an item of a list parameter."""
        self._set_list(name, {**self.list(name), key: str(value)})

    def remove(self, name, key):
        """Removes an item of a list parameter."""
        self._set_list(name, {k: v for k, v in self.list(name).items() if k != key})

    def set_env(self, name, value):
        """Sets a variable of the job."""
        self._say("ENV %s %s %s" % ("MOD" if name in self.env else "ADD", name, value))
        self.env[name] = value

    def delete_env(self, name):
        """Removes a variable of the job."""
        self.env.pop(name, None)
        self._say("ENV DEL %s" % name)

    def log(self, level, text):
        """A line for the log: INFO, WARNING or ERROR."""
        self._say("LOG %s %s" % (level, text))

    def _end(self, state, message):
        if not self.is_over:
            self.is_over = True
            self._say(("RESULT STATE %s %s" % (state, message)).rstrip())

    def accept(self, message=""):
        """The job is as it is."""
        self._end("ACCEPT", message)

    def correct(self, message=""):
        """The changes count."""
        self._end("CORRECT", message)

    def reject(self, message=""):
        """The job is refused."""
        self._end("REJECT", message)

    def reject_wait(self, message=""):
        """The job is refused for now."""
        self._end("REJECT_WAIT", message)


class Verifier:
    """Reads jobs from standard input and has each verified."""

    wants_environment = False

    def start(self):
        """Called before each job."""

    def verify(self, job):
        """Says what becomes of a job; it is accepted if nothing is said."""

    @staticmethod
    def _say(line):
        sys.stdout.write(line.replace("\n", " ") + "\n")
        sys.stdout.flush()

    def main(self):
        """Serves until the end."""
        job = Job(self._say)
        for line in iter(sys.stdin.readline, ""):
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "QUIT":
                return
            if word == "START":
                job = Job(self._say)
                self.start()
                if self.wants_environment:
                    self._say("SEND ENV")
                self._say("STARTED")
            elif word == "PARAM":
                name, _, value = rest.partition(" ")
                job.params[name] = value
            elif word == "ENV":
                name, _, value = rest.partition(" ")[2].partition(" ")
                job.env[name] = value
            elif word == "BEGIN":
                self.verify(job)
                job.accept()
            else:
                self._say("ERROR unknown command: " + word)
