/** An answer that can be written whole or as the frames of a stream. */
export type DemoAnswer = {
  whole(): object
  /** Server-sent events. */
  frames(): Iterable<string>
  /** Follows the last frame without a pause. */
  readonly end: string
}

/** `type` is also the name of the event. */
export type NamedEvent = { readonly type: string }

export function* writeFrames<Event>(
  events: Iterable<Event>,
  frameOf: (event: Event) => string,
): Generator<string> {
  for (const event of events) yield frameOf(event)
}

export function eventFrame(event: NamedEvent): string {
  return `event: ${event.type}\n${dataFrame(event)}`
}

export function dataFrame(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`
}

export function event(type: string, data: object): NamedEvent {
  return { type, ...data }
}
