import { EVIL, type Loose } from './gateway-attacks/attack-case.ts'

/**
 * A change of the first event of this type: SDKs would assemble different answers from the changed
 * stream. `change` returns the events in its place, and may change `data`.
 */
export type AmbiguousStream = {
  readonly what: string
  readonly type: string
  readonly change: (data: Loose) => readonly Loose[]
  /** The name of the event, if it is not the type of the data. */
  readonly event?: string
}

/** Changes `data` in place. */
const edited =
  (change: (data: Loose) => unknown) =>
  (data: Loose): readonly Loose[] => {
    change(data)
    return [data]
  }

/** Streams of one text, by dialect. */
export const AMBIGUOUS_STREAMS: Readonly<
  Record<'Responses' | 'Messages', readonly AmbiguousStream[]>
> = {
  Responses: [
    {
      what: 'another text in the done text',
      type: 'response.output_text.done',
      change: edited((data) => (data.text = EVIL)),
    },
    {
      what: 'another text in the done item',
      type: 'response.output_item.done',
      change: edited((data) => (data.item.content[0].text = EVIL)),
    },
    {
      what: 'another text in the final response',
      type: 'response.completed',
      change: edited((data) => (data.response.output[0].content[0].text = EVIL)),
    },
    {
      what: 'a text after its item is done',
      type: 'response.output_item.done',
      change: (data) => [data, { ...data, type: 'response.output_text.delta', delta: EVIL }],
    },
    {
      what: 'an output_index twice',
      type: 'response.output_item.done',
      change: (data) => [data, { ...data, type: 'response.output_item.added' }, data],
    },
    {
      what: 'a text under the name ping',
      type: 'response.output_text.delta',
      change: (data) => [data],
      event: 'ping',
    },
    {
      what: 'a text at the start of a part',
      type: 'response.content_part.added',
      change: edited((data) => (data.part.text = 'PRE')),
    },
    {
      what: 'two started responses',
      type: 'response.created',
      change: (data) => [data, data],
    },
  ],
  Messages: [
    {
      what: 'content in message_start',
      type: 'message_start',
      change: edited((data) => data.message.content.push({ type: 'text', text: 'PRE' })),
    },
    {
      what: 'a text at the start of a block',
      type: 'content_block_start',
      change: edited((data) => (data.content_block.text = 'PRE')),
    },
    {
      what: 'a block index twice',
      type: 'content_block_start',
      change: (data) => [data, data],
    },
    {
      what: 'thinking in a block of text',
      type: 'content_block_delta',
      change: edited((data) => (data.delta = { type: 'thinking_delta', thinking: EVIL })),
    },
    {
      what: 'a text under the name ping',
      type: 'content_block_delta',
      change: (data) => [data],
      event: 'ping',
    },
    {
      what: 'a text after its block is stopped',
      type: 'content_block_stop',
      change: ({ index, ...data }) => [
        { ...data, index },
        { type: 'content_block_delta', index, delta: { type: 'text_delta', text: EVIL } },
      ],
    },
    {
      what: 'two message_deltas',
      type: 'message_delta',
      change: (data) => [data, data],
    },
    {
      what: 'two started messages',
      type: 'message_start',
      change: (data) => [data, data],
    },
  ],
}

/** Returns the events of a stream with one change. */
export function makeAmbiguous(
  events: readonly string[],
  { type, change, event }: AmbiguousStream,
): readonly string[] {
  const at = events.findIndex((text) => text.startsWith(`event: ${type}\n`))
  const [, data = ''] = /^data: (.*)$/m.exec(events[at] ?? '') ?? []
  const made = change(JSON.parse(data)).map(
    (one: Loose) => `event: ${event ?? one.type}\ndata: ${JSON.stringify(one)}\n\n`,
  )
  return events.toSpliced(at, 1, ...made)
}
