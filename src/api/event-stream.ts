import type { Logger } from '../observability/logger.ts'
import type { RouteContext } from './context.ts'
import { createEventWriter, DRAIN_TIMEOUT_MS, type EventWriter } from './event-writer.ts'
import { noteFailure } from './note-failure.ts'
import { noteProcessingTime } from './open-request.ts'

/** What streams need of the app. */
export type EventStreamOptions = {
  readonly keepAliveMs: number
  readonly now: () => number
  readonly log: Logger
}

/**
 * Answers with a stream of events that `write` writes. What it throws is thrown on while nothing was sent, so that it is
 * answered like any other fault, unless `isEvent` says that it is told as an error event even so; once the stream has begun, also by its first
 * keep-alive comment, every fault is one.
 */
export async function streamEvents(
  context: RouteContext,
  { keepAliveMs, now, log }: EventStreamOptions,
  write: (writer: EventWriter) => Promise<unknown>,
  isEvent: (error: unknown) => boolean = () => false,
): Promise<void> {
  const onOpen = () => {
    context.respond = false
    noteProcessingTime(context, now)
  }
  const writer = createEventWriter({
    response: context.res,
    keepAliveMs,
    drainTimeoutMs: DRAIN_TIMEOUT_MS,
    onOpen,
  })
  const noting: EventWriter = {
    ...writer,
    write(events) {
      context.state.firstEventAtMs ??= now()
      return writer.write(events)
    },
  }
  try {
    await write(noting)
  } catch (error) {
    if (context.res.destroyed || !(writer.isOpen() || isEvent(error))) throw error
    writer.fail(noteFailure(context, error, log))
  } finally {
    writer.close()
  }
}
