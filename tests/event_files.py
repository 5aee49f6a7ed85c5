"""TensorBoard's event files, read by TensorFlow, which has not written them."""

from typing import NamedTuple


class Events(NamedTuple):
    """Content of the files of one folder: (tag, step) -> scalar or histogram, and tag -> text."""

    scalars: dict
    histograms: dict
    texts: dict

    @property
    def tags(self):
        return {tag for tag, _ in (*self.scalars, *self.histograms)}


def read_events(folder):
    """Read all files directly in the folder."""
    import tensorflow as tf

    found = Events({}, {}, {})
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.HasField("histo"):
                    found.histograms[value.tag, event.step] = value.histo
                elif value.HasField("tensor"):
                    found.texts[value.tag.removesuffix("/text_summary")] = value.tensor.string_val[0].decode()
                else:
                    found.scalars[value.tag, event.step] = value.simple_value
    return found
