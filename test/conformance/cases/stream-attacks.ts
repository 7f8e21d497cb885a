/** A change on the way of the texts of a stream's events, the last with the proof. */
type Change = (events: readonly string[]) => readonly string[]

/** Changes by name, each in words. */
type Attacks = Readonly<Record<string, readonly [about: string, change: Change]>>

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

function both(mark: string): Attacks {
  return {
    'cut-before-the-last-event': [
      'The stream ends before its last event.',
      (events) => events.slice(0, -1),
    ],
    'cut-in-the-last-event': [
      'The stream ends in its last event.',
      (events) => events.with(-1, (events.at(-1) ?? '').slice(0, -20)),
    ],
    'without-proof': [
      'The last event has no proof.',
      (events) => events.with(-1, withoutProof(events.at(-1) ?? '')),
    ],
    'event-doubled': [
      'The end of a text is there twice.',
      replace(mark, (event) => [event, event]),
    ],
    'event-moved': [
      'The end of a text stands before its last delta.',
      (events) => {
        const at = events.findIndex((event) => event.includes(mark))
        return [
          ...events.slice(0, at - 1),
          events[at] ?? '',
          events[at - 1] ?? '',
          ...events.slice(at + 1),
        ]
      },
    ],
    'event-dropped': ['The end of a text is missing.', replace(mark, () => [])],
    'event-renamed': [
      'A delta has the name of a ping, which some readers drop.',
      rewrite('Grö', /^event: .*/, 'event: ping'),
    ],
    'event-without-name': [
      'A delta has no name: some readers drop such events.',
      rewrite('Grö', /^event: .*\n/, ''),
    ],
    'unknown-event': [
      'An event that no enclave gives out.',
      (events) => ['event: x.y\ndata: {"type":"x.y"}\n\n', ...events],
    ],
    'ping-with-content': [
      'A ping says more than its type.',
      (events) => ['event: ping\ndata: {"type":"ping","text":"Pay."}\n\n', ...events],
    ],
    'event-after-the-last': [
      'The first event is there again after the last.',
      (events) => [...events, events[0] ?? ''],
    ],
    'done-after-the-last': [
      'The stream ends as that of a chat does.',
      (events) => [...events, 'data: [DONE]\n\n'],
    ],
    'error-in-place-of-the-last': [
      'The stream ends with an error.',
      (events) => [
        ...events.slice(0, -1),
        'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"x"}}\n\n',
      ],
    ],
    'proof-in-the-first-event-too': [
      'An earlier event has a proof too.',
      (events) =>
        events.with(0, (events[0] ?? '').replace(/"(response|type)":/, '"affidavit":{},"$1":')),
    ],
    'two-lines-of-data': [
      'The data of an event are on two lines.',
      rewrite('Grö', 'data: {', 'data: {\ndata: '),
    ],
    'two-names': ['An event has two names.', rewrite('Grö', 'event: ', 'event: ping\nevent: ')],
    'member-twice': [
      'A delta is there twice in one event.',
      rewrite('Grö', '"delta":', '"delta":"Pay.","delta":'),
    ],
    'byte-order-mark': [
      'A byte order mark stands before the first event: some readers drop it.',
      (events) => ['\ufeff', ...events],
    ],
  }
}

function withoutProof(event: string): string {
  return event.replace(/(,?)"affidavit":\{.*\}(?=\}\}|\}\n|\},")/, (_, comma) => (comma ? '' : ''))
}

/** Streams of each dialect that are refused: each breaks one rule of dialects/formats.md. */
export const REFUSED_STREAMS: Readonly<Record<'responses' | 'messages', Attacks>> = {
  responses: {
    ...both('response.output_text.done'),
    'proof-beside-the-response': [
      'The proof is not in the response of the last event.',
      (events) => events.with(-1, moveProofUp(events.at(-1) ?? '')),
    ],
    'text-of-the-end-changed': [
      'The end of a text is not what its deltas say.',
      rewrite('response.output_text.done', 'Größe', 'Große'),
    ],
    'item-changed': [
      'An item at its end is not what its deltas say.',
      replace('"status":"completed","content"', (event) => [event.replace('Größe', 'Große')]),
    ],
    'final-answer-changed': [
      'The last event says another text than the deltas.',
      (events) => events.with(-1, (events.at(-1) ?? '').replace('Größe', 'Große')),
    ],
    'sequence-number-missing': [
      'A delta has no sequence_number.',
      rewrite('Grö', /,"sequence_number":\d+/, ''),
    ],
  },
  messages: {
    ...both('"content_block_stop","index":1'),
    'proof-in-the-message-delta': [
      'The proof is on the event before the last.',
      (events) => {
        const [last = '', before = ''] = [events.at(-1), events.at(-2)]
        const [proof = ''] = /"affidavit":\{.*\}(?=\}\n)/.exec(last) ?? []
        return [
          ...events.slice(0, -2),
          before.replace('data: {', `data: {${proof},`),
          withoutProof(last),
        ]
      },
    ],
    'text-at-the-start-of-a-block': [
      'A block starts with text, which readers of deltas do not show.',
      rewrite('"content_block":{"type":"text"', '"text":""', '"text":"Pay."'),
    ],
    'index-changed': [
      'A delta has the index of another block.',
      rewrite('Grö', '"index":1', '"index":0'),
    ],
    'signature-twice': [
      'A thinking block has two signatures.',
      replace('signature_delta', (event) => [event, event]),
    ],
    'second-stop-reason': [
      'A second message_delta.',
      replace('"message_delta"', (event) => [event, event]),
    ],
    'member-that-sdks-do-not-read': [
      'A delta has a member that an enclave leaves out.',
      rewrite('Grö', 'data: {', 'data: {"note":"Pay.",'),
    ],
  },
}

function moveProofUp(event: string): string {
  const [proof = ''] = /"affidavit":\{.*\}(?=\},"sequence)/.exec(event) ?? []
  return withoutProof(event).replace('data: {', `data: {${proof},`)
}
