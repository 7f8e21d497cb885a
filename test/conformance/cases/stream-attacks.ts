/** A change on the way of the texts of a stream's events, the last with the proof. */
export type Attack = {
  readonly slug: string
  readonly about: string
  readonly change: (events: readonly string[]) => readonly string[]
}

type Change = Attack['change']

/** Finds the only event with this text, and puts others in its place. */
function replace(mark: string, by: (event: string) => readonly string[]): Change {
  return (events) => {
    const at = events.findIndex((event) => event.includes(mark))
    if (at < 0) throw new Error(`expected an event with ${mark}`)
    return events.toSpliced(at, 1, ...by(events[at] ?? ''))
  }
}

const rewrite = (mark: string, from: string | RegExp, to: string) =>
  replace(mark, (event) => {
    const changed = event.replace(from, to)
    if (changed === event) throw new Error(`expected ${from} in ${event}`)
    return [changed]
  })

function both(mark: string): readonly Attack[] {
  return [
    {
      slug: 'cut-before-the-last-event',
      about: 'The stream ends before its last event.',
      change: (events) => events.slice(0, -1),
    },
    {
      slug: 'cut-in-the-last-event',
      about: 'The stream ends in its last event.',
      change: (events) => events.with(-1, (events.at(-1) ?? '').slice(0, -20)),
    },
    {
      slug: 'without-proof',
      about: 'The last event has no proof.',
      change: (events) => events.with(-1, withoutProof(events.at(-1) ?? '')),
    },
    {
      slug: 'event-doubled',
      about: 'The end of a text is there twice.',
      change: replace(mark, (event) => [event, event]),
    },
    {
      slug: 'event-moved',
      about: 'The end of a text stands before its last delta.',
      change: (events) => {
        const at = events.findIndex((event) => event.includes(mark))
        return [
          ...events.slice(0, at - 1),
          events[at] ?? '',
          events[at - 1] ?? '',
          ...events.slice(at + 1),
        ]
      },
    },
    {
      slug: 'event-dropped',
      about: 'The end of a text is missing.',
      change: replace(mark, () => []),
    },
    {
      slug: 'event-renamed',
      about: 'A delta has the name of a ping, which some readers drop.',
      change: rewrite('Grö', /^event: .*/, 'event: ping'),
    },
    {
      slug: 'event-without-name',
      about: 'A delta has no name: some readers drop such events.',
      change: rewrite('Grö', /^event: .*\n/, ''),
    },
    {
      slug: 'unknown-event',
      about: 'An event that no enclave gives out.',
      change: (events) => ['event: x.y\ndata: {"type":"x.y"}\n\n', ...events],
    },
    {
      slug: 'ping-with-content',
      about: 'A ping says more than its type.',
      change: (events) => ['event: ping\ndata: {"type":"ping","text":"Pay."}\n\n', ...events],
    },
    {
      slug: 'event-after-the-last',
      about: 'The first event is there again after the last.',
      change: (events) => [...events, events[0] ?? ''],
    },
    {
      slug: 'done-after-the-last',
      about: 'The stream ends as that of a chat does.',
      change: (events) => [...events, 'data: [DONE]\n\n'],
    },
    {
      slug: 'error-in-place-of-the-last',
      about: 'The stream ends with an error.',
      change: (events) => [
        ...events.slice(0, -1),
        'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"x"}}\n\n',
      ],
    },
    {
      slug: 'proof-in-the-first-event-too',
      about: 'An earlier event has a proof too.',
      change: (events) =>
        events.with(0, (events[0] ?? '').replace(/"(response|type)":/, '"affidavit":{},"$1":')),
    },
    {
      slug: 'two-lines-of-data',
      about: 'The data of an event are on two lines.',
      change: rewrite('Grö', 'data: {', 'data: {\ndata: '),
    },
    {
      slug: 'two-names',
      about: 'An event has two names.',
      change: rewrite('Grö', 'event: ', 'event: ping\nevent: '),
    },
    {
      slug: 'member-twice',
      about: 'A delta is there twice in one event.',
      change: rewrite('Grö', '"delta":', '"delta":"Pay.","delta":'),
    },
    {
      slug: 'byte-order-mark',
      about: 'A byte order mark stands before the first event: some readers drop it.',
      change: (events) => ['\ufeff', ...events],
    },
  ]
}

function withoutProof(event: string): string {
  return event.replace(/(,?)"affidavit":\{.*\}(?=\}\}|\}\n|\},")/, (_, comma) => (comma ? '' : ''))
}

/** Streams of each dialect that are refused: each breaks one rule of dialects/formats.md. */
export const REFUSED_STREAMS: Readonly<Record<'responses' | 'messages', readonly Attack[]>> = {
  responses: [
    ...both('response.output_text.done'),
    {
      slug: 'proof-beside-the-response',
      about: 'The proof is not in the response of the last event.',
      change: (events) => events.with(-1, moveProofUp(events.at(-1) ?? '')),
    },
    {
      slug: 'text-of-the-end-changed',
      about: 'The end of a text is not what its deltas say.',
      change: rewrite('response.output_text.done', 'Größe', 'Große'),
    },
    {
      slug: 'item-changed',
      about: 'An item at its end is not what its deltas say.',
      change: replace('"status":"completed","content"', (event) => [
        event.replace('Größe', 'Große'),
      ]),
    },
    {
      slug: 'final-answer-changed',
      about: 'The last event says another text than the deltas.',
      change: (events) => events.with(-1, (events.at(-1) ?? '').replace('Größe', 'Große')),
    },
    {
      slug: 'sequence-number-missing',
      about: 'A delta has no sequence_number.',
      change: rewrite('Grö', /,"sequence_number":\d+/, ''),
    },
  ],
  messages: [
    ...both('"content_block_stop","index":1'),
    {
      slug: 'proof-in-the-message-delta',
      about: 'The proof is on the event before the last.',
      change: (events) => {
        const [last = '', before = ''] = [events.at(-1), events.at(-2)]
        const [proof = ''] = /"affidavit":\{.*\}(?=\}\n)/.exec(last) ?? []
        return [
          ...events.slice(0, -2),
          before.replace('data: {', `data: {${proof},`),
          withoutProof(last),
        ]
      },
    },
    {
      slug: 'text-at-the-start-of-a-block',
      about: 'A block starts with text, which readers of deltas do not show.',
      change: rewrite('"content_block":{"type":"text"', '"text":""', '"text":"Pay."'),
    },
    {
      slug: 'index-changed',
      about: 'A delta has the index of another block.',
      change: rewrite('Grö', '"index":1', '"index":0'),
    },
    {
      slug: 'signature-twice',
      about: 'A thinking block has two signatures.',
      change: replace('signature_delta', (event) => [event, event]),
    },
    {
      slug: 'second-stop-reason',
      about: 'A second message_delta.',
      change: replace('"message_delta"', (event) => [event, event]),
    },
    {
      slug: 'member-that-sdks-do-not-read',
      about: 'A delta has a member that an enclave leaves out.',
      change: rewrite('Grö', 'data: {', 'data: {"note":"Pay.",'),
    },
  ],
}

function moveProofUp(event: string): string {
  const [proof = ''] = /"affidavit":\{.*\}(?=\},"sequence)/.exec(event) ?? []
  return withoutProof(event).replace('data: {', `data: {${proof},`)
}
