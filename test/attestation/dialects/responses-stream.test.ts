import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ResponsesReader } from '#attestation/dialects/responses/read-stream.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { dataOf, readAll, responsesReadings } from './readers.ts'
import { type BuiltItem, responsesStream } from './responses-streams.ts'

const ITEMS: readonly BuiltItem[] = [
  { kind: 'reasoning', id: 'rs_1', pieces: ['I ', 'look'] },
  { kind: 'message', id: 'msg_1', pieces: ['Hel', 'lo'] },
  { kind: 'call', id: 'fc_1', pieces: ['{"path":', '"a.txt"}'] },
]
const STREAM = responsesStream(ITEMS)

const read = (events: readonly JsonObject[]) => readAll(new ResponsesReader(), events)

/** Replaces the only event that `matches`. */
function change(
  matches: (event: JsonObject) => boolean,
  edit: (event: JsonObject) => readonly JsonObject[],
): readonly JsonObject[] {
  const at = STREAM.findIndex(matches)
  return [...STREAM.slice(0, at), ...edit(STREAM[at] as JsonObject), ...STREAM.slice(at + 1)]
}

const ofType = (type: string) => (event: JsonObject) => event.type === type
const copy = <Value>(value: Value): Value => structuredClone(value)

describe('a stream of Responses', () => {
  it('the reader gives out every event of a whole stream as it came', () => {
    const { given, code } = read(STREAM)
    expect(code).toBeNull()
    expect(dataOf(given)).toEqual(STREAM)
  })

  it('ends with the final response, and gives nothing after it', () => {
    const reader = new ResponsesReader()
    readAll(reader, STREAM)
    expect(reader.isEnded).toBe(true)
    expect(reader.response()).toEqual(STREAM.at(-1)?.response)
    expect(readAll(reader, [...STREAM]).given).toEqual([])
  })

  it('the reader has not ended before its last event', () => {
    for (let length = 0; length < STREAM.length; length++) {
      const reader = new ResponsesReader()
      expect(readAll(reader, STREAM.slice(0, length)).code).toBeNull()
      expect(reader.isEnded).toBe(false)
    }
  })

  it('the reader gives the answer as far as events came', () => {
    const reader = new ResponsesReader()
    const at = STREAM.findIndex(ofType('response.output_text.delta'))
    readAll(reader, STREAM.slice(0, at + 1))
    const { output } = reader.response() as { readonly output: readonly JsonObject[] }
    expect(output).toHaveLength(2)
    expect(output[1]).toMatchObject({ content: [{ type: 'output_text', text: 'Hel' }] })
  })

  const settled: Readonly<Record<string, readonly JsonObject[]>> = {
    'a stream without sequence numbers': STREAM.map(({ sequence_number: _, ...event }) => event),
    'a final output that is empty': change(ofType('response.completed'), (event) => [
      { ...event, response: { ...(event.response as JsonObject), output: [] } },
    ]),
    'a final output in another order': change(ofType('response.completed'), (event) => {
      const response = event.response as JsonObject & { readonly output: readonly JsonObject[] }
      return [{ ...event, response: { ...response, output: [...response.output].reverse() } }]
    }),
    'unknown events': STREAM.flatMap((event) => [event, { type: 'response.rate_limits' }]),
    'keep-alives': STREAM.flatMap((event) => [{ type: 'keepalive' }, event]),
    'missing ends of texts and parts': STREAM.filter(
      ({ type }) => !/(text|arguments|part)\.done$/.test(String(type)),
    ),
    'missing begins of parts': STREAM.filter(({ type }) => !/part\.added$/.test(String(type))),
    'events without output_index': STREAM.map(({ output_index: _, ...event }) => event),
    'events without item_id': STREAM.map(({ item_id: _, ...event }) => event),
    'events without the index of the part': STREAM.map(
      ({ content_index: _, summary_index: __, ...event }) => event,
    ),
    'events after the last': [...STREAM, ...STREAM],
    'a text that SDKs compute': change(ofType('response.completed'), (event) => [
      { ...event, response: { ...(event.response as JsonObject), output_text: 'EVIL' } },
    ]),
    'members of the final items that differ without a text': change(
      ofType('response.completed'),
      (event) => [JSON.parse(JSON.stringify(event).replaceAll('"completed"}', '"done"}'))],
    ),
    'events whose item_id is null': STREAM.map((event) =>
      event.item_id === undefined ? event : { ...event, item_id: null },
    ),
    'a proof of the provider': change(ofType('response.completed'), (event) => [
      { ...event, affidavit: {}, response: { ...(event.response as JsonObject), affidavit: {} } },
    ]),
  }
  for (const [what, events] of Object.entries(settled))
    it(`the reader settles ${what}`, () => {
      const { given, code } = read(events)
      expect(code).toBeNull()
      expect(dataOf(given)).toEqual(STREAM)
    })

  const refused: Readonly<Record<string, readonly [string, readonly JsonObject[]]>> = {
    'an item whose end is not what streamed': [
      'changed_text',
      change(
        (event) => event.type === 'response.output_item.done' && event.output_index === 1,
        (event) => [JSON.parse(JSON.stringify(event).replace('"text":"Hello"', '"text":"Bye"'))],
      ),
    ],
    'a final answer that is not what streamed': [
      'changed_text',
      change(ofType('response.completed'), (event) => [
        JSON.parse(JSON.stringify(event).replace('"text":"Hello"', '"text":"Bye"')),
      ]),
    ],
    'an end of a text that is not what streamed': [
      'changed_text',
      change(ofType('response.output_text.done'), (event) => [{ ...event, text: 'Bye' }]),
    ],
    'an end of a part that is not what streamed': [
      'changed_text',
      change(ofType('response.content_part.done'), (event) => [
        { ...event, part: { type: 'output_text', text: 'Bye', annotations: [] } },
      ]),
    ],
    'final items with other ids': [
      'changed_text',
      change(ofType('response.completed'), (event) => [
        JSON.parse(JSON.stringify(event).replaceAll('msg_1', 'msg_2')),
      ]),
    ],
    'a final answer that lacks an item': [
      'changed_text',
      change(ofType('response.completed'), (event) => {
        const response = event.response as JsonObject & { readonly output: readonly JsonObject[] }
        return [{ ...event, response: { ...response, output: response.output.slice(1) } }]
      }),
    ],
    'text after the end of its item': [
      'late_event',
      change(ofType('response.completed'), (event) => [
        { type: 'response.output_text.delta', output_index: 1, content_index: 0, delta: '!' },
        event,
      ]),
    ],
    'text after its own end': [
      'late_event',
      change(ofType('response.output_text.done'), (event) => [
        event,
        { type: 'response.output_text.delta', output_index: 1, content_index: 0, delta: '!' },
      ]),
    ],
    'an index of an item for a second time': [
      'changed_identity',
      change(
        (event) => event.type === 'response.output_item.added' && event.output_index === 2,
        (event) => [{ ...event, output_index: 1 }],
      ),
    ],
    'an item with text at its start': [
      'unread_member',
      change(
        (event) => event.type === 'response.output_item.added' && event.output_index === 1,
        (event) => [
          {
            ...event,
            item: {
              ...(event.item as JsonObject),
              content: [{ type: 'output_text', text: 'PRE' }],
            },
          },
        ],
      ),
    ],
    'a part with text at its start': [
      'unread_member',
      change(ofType('response.content_part.added'), (event) => [
        { ...event, part: { type: 'output_text', text: 'PRE', annotations: [] } },
      ]),
    ],
    'a response that begins with output': [
      'unread_member',
      change(ofType('response.created'), (event) => [
        {
          ...event,
          response: {
            ...(event.response as JsonObject),
            output: [(STREAM[7] as JsonObject).item as JsonObject],
          },
        },
      ]),
    ],
    'a second response': ['changed_identity', [STREAM[0] as JsonObject, ...STREAM]],
    'a final response with another id': [
      'changed_identity',
      change(ofType('response.completed'), (event) => [
        { ...event, response: { ...(event.response as JsonObject), id: 'resp_2' } },
      ]),
    ],
    'a stream without response.created': ['changed_identity', STREAM.slice(1)],
    'an item that did not end': [
      'unfinished',
      STREAM.filter(
        (event) => !(event.type === 'response.output_item.done' && event.output_index === 2),
      ),
    ],
    'a delta of a text that its item cannot have': [
      'changed_type',
      change(ofType('response.output_text.delta'), (event) => [
        { ...event, type: 'response.reasoning_text.delta' },
      ]),
    ],
    'arguments of a function that are no object': [
      'invalid_tool_input',
      JSON.parse(JSON.stringify(STREAM).replaceAll('a.txt\\"}', 'a.txt\\"')),
    ],
    'a name of a function that changes': [
      'changed_identity',
      change(
        (event) => event.type === 'response.output_item.done' && event.output_index === 2,
        (event) => [JSON.parse(JSON.stringify(event).replace('read_file', 'delete_file'))],
      ),
    ],
    'a call id that changes': [
      'changed_identity',
      change(
        (event) => event.type === 'response.output_item.done' && event.output_index === 2,
        (event) => [JSON.parse(JSON.stringify(event).replace('call_fc_1', 'call_2'))],
      ),
    ],
    'a status that is not that of its event': [
      'changed_finish',
      change(ofType('response.completed'), (event) => [{ ...event, type: 'response.incomplete' }]),
    ],
    'an error event': [
      'upstream_failure',
      change(ofType('response.completed'), () => [{ type: 'error', code: 'x', message: 'no' }]),
    ],
    'two messages at once': [
      'unfinished',
      change(ofType('response.output_text.delta'), (event) => [
        event,
        {
          type: 'response.output_item.added',
          output_index: 2,
          item: { id: 'msg_2', type: 'message', role: 'assistant', content: [] },
        },
      ]),
    ],
    'an item_id of another item': [
      'changed_identity',
      change(ofType('response.output_text.delta'), (event) => [{ ...event, item_id: 'rs_1' }]),
    ],
    'an annotation that the part does not end with': [
      'changed_text',
      change(ofType('response.output_text.done'), (event) => [
        {
          type: 'response.output_text.annotation.added',
          output_index: 1,
          content_index: 0,
          annotation: { type: 'url_citation', url: 'https://example.com' },
        },
        event,
      ]),
    ],
    'a message of another role': [
      'invalid_form',
      JSON.parse(JSON.stringify(STREAM).replaceAll('"assistant"', '"user"')),
    ],
    'annotations of a part that is no text of a message': [
      'invalid_form',
      JSON.parse(
        JSON.stringify(STREAM).replaceAll(
          '"summary_text","text":"I look"',
          '"summary_text","text":"I look","annotations":[{}]',
        ),
      ),
    ],
    'a call without an id': [
      'invalid_form',
      JSON.parse(JSON.stringify(STREAM).replaceAll('"call_fc_1"', '""')),
    ],
    'two calls with one id': [
      'changed_identity',
      JSON.parse(
        JSON.stringify(
          responsesStream([
            { kind: 'call', id: 'fc_1', pieces: ['{}'] },
            { kind: 'call', id: 'fc_2', pieces: ['{}'] },
          ]),
        ).replaceAll('call_fc_2', 'call_fc_1'),
      ),
    ],
    'an end before the end of an earlier item': [
      'unfinished',
      [
        ...STREAM.slice(0, 3),
        {
          type: 'response.output_item.added',
          output_index: 1,
          item: { id: 'ws_1', type: 'web_search_call' },
        },
        {
          type: 'response.output_item.done',
          output_index: 1,
          item: { id: 'ws_1', type: 'web_search_call' },
        },
      ],
    ],
    'an item that did not end in a response that is incomplete': [
      'unfinished',
      [
        ...STREAM.slice(0, 11),
        {
          type: 'response.incomplete',
          response: { ...(STREAM[0]?.response as JsonObject), status: 'incomplete', output: [] },
        },
      ],
    ],
    'a model that changes': [
      'changed_identity',
      change(ofType('response.completed'), (event) => [
        { ...event, response: { ...(event.response as JsonObject), model: 'm2' } },
      ]),
    ],
    'an error in a response that is completed': [
      'changed_finish',
      change(ofType('response.completed'), (event) => [
        {
          ...event,
          response: { ...(event.response as JsonObject), incomplete_details: { reason: 'x' } },
        },
      ]),
    ],
    'a tool that says one thing at its start and another at its end': [
      'changed_identity',
      [
        ...STREAM.slice(0, 2),
        {
          type: 'response.output_item.added',
          output_index: 0,
          item: { id: 'sh_1', type: 'shell_call', action: { commands: ['ls'] } },
        },
        {
          type: 'response.output_item.done',
          output_index: 0,
          item: { id: 'sh_1', type: 'shell_call', action: { commands: ['rm -rf /'] } },
        },
      ],
    ],
    'another name beside the arguments of a function': [
      'changed_identity',
      change(ofType('response.function_call_arguments.done'), (event) => [
        { ...event, name: 'delete_file' },
      ]),
    ],
    'a beginning after an item': [
      'changed_identity',
      change(ofType('response.completed'), (event) => [STREAM[1] as JsonObject, event]),
    ],
    'data without a type': ['invalid_form', [{}, ...STREAM]],
  }
  for (const [what, [expected, events]] of Object.entries(refused))
    it(`the reader refuses ${what}`, () => {
      expect(read(events).code).toBe(expected)
    })

  it('the reader gives annotations that a provider states only at the end of a part', () => {
    const citation = { type: 'url_citation', url: 'https://example.com' }
    const events = JSON.parse(
      JSON.stringify(STREAM).replaceAll(
        '"text":"Hello","annotations":[]',
        `"text":"Hello","annotations":[${JSON.stringify(citation)}]`,
      ),
    )
    const { given, code } = read(events)
    expect(code).toBeNull()
    const added = given.filter(({ event }) => event === 'response.output_text.annotation.added')
    expect(added).toMatchObject([{ data: { annotation: citation, annotation_index: 0 } }])
    expect(dataOf(read(dataOf(given)).given)).toEqual(dataOf(given))
  })

  it('the reader gives a call that has no id the id of the call, as its events name it', () => {
    const events = JSON.parse(
      JSON.stringify(STREAM).replaceAll('"id":"fc_1",', '').replaceAll('"fc_1"', '"call_fc_1"'),
    )
    const { given, code } = read(events)
    expect(code).toBeNull()
    expect(JSON.stringify(given)).toContain('"id":"call_fc_1"')
  })

  it('the reader takes time in proportion to the items of a stream', () => {
    const items = Array.from(
      { length: 20_000 },
      (_, at): BuiltItem => ({ kind: 'call', id: `fc_${at}`, pieces: ['{}'] }),
    )
    const reader = new ResponsesReader()
    expect(readAll(reader, responsesStream(items)).code).toBeNull()
    expect(reader.isEnded).toBe(true)
  })

  it('the reader takes time in proportion to the items that have not ended', () => {
    const reader = new ResponsesReader()
    readAll(reader, STREAM.slice(0, 1))
    const items = Array.from({ length: 40_000 }, (_, at) => ({
      type: 'response.output_item.added',
      item: { type: 'web_search_call', id: `ws_${at}` },
    }))
    const startedMs = performance.now()
    expect(readAll(reader, items).code).toBeNull()
    // Before, each item read all open ones: 20 s.
    expect(performance.now() - startedMs).toBeLessThan(5_000)
  })

  it('the reader writes the empty members to which readers add deltas', () => {
    const lacking = JSON.parse(
      JSON.stringify(STREAM)
        .replaceAll(/"text":"",|,"text":""/g, '')
        .replaceAll('"arguments":"",', '"arguments":null,')
        .replaceAll(/,"(?:content|summary|output)":\[\]/g, ''),
    )
    expect(lacking).not.toEqual(STREAM)
    const { given, code } = read(lacking)
    expect(code).toBeNull()
    expect(dataOf(given)).toEqual(STREAM)
  })

  it('the reader refuses an end that many annotations would make into far more bytes', () => {
    const annotations = Array.from({ length: 1_001 }, () => ({}))
    const events = JSON.parse(
      JSON.stringify(STREAM).replaceAll(
        '"text":"Hello","annotations":[]',
        `"text":"Hello","annotations":${JSON.stringify(annotations)}`,
      ),
    )
    expect(read(events).code).toBe('invalid_form')
  })

  it("the reader gives a tool's answer by the provider beside the call of the same id", () => {
    const items = [
      { type: 'shell_call', id: 'sh_1', call_id: 'call_1' },
      { type: 'shell_call_output', id: 'sho_1', call_id: 'call_1' },
    ].flatMap((item) => [
      { type: 'response.output_item.added', item },
      { type: 'response.output_item.done', item },
    ])
    expect(read([...STREAM.slice(0, 2), ...items]).code).toBeNull()
    expect(read([...STREAM.slice(0, 2), ...items, ...items.slice(0, 1)]).code).not.toBeNull()
  })

  it('the reader takes ids that are null for ids that are left out', () => {
    const items = ['ws_1', 'ws_2'].flatMap((id) =>
      ['added', 'done'].map((verb) => ({
        type: `response.output_item.${verb}`,
        item: { type: 'web_search_call', id, call_id: null },
      })),
    )
    expect(read([...STREAM.slice(0, 2), ...items]).code).toBeNull()
  })

  // Captures of xAI and OpenAI in the fixtures of https://github.com/vercel/ai.
  it.each([
    [
      'web_search_call',
      { action: { type: 'search', query: '', sources: [] } },
      { action: { type: 'search', query: 'title', sources: [{ type: 'url', url: 'https://x' }] } },
    ],
    [
      'shell_call',
      { action: { commands: [], max_output_length: null, timeout_ms: null } },
      { action: { commands: ['ls'], max_output_length: 8912, timeout_ms: null } },
    ],
    [
      'local_shell_call',
      { action: { type: 'exec', command: [], env: {} } },
      { action: { type: 'exec', command: ['ls'], env: {} } },
    ],
    [
      'apply_patch_call',
      { operation: { type: 'create_file', path: 'a', diff: '' } },
      { operation: { type: 'create_file', path: 'a', diff: '+b' } },
    ],
    ['program', { code: '', fingerprint: 'a' }, { code: 'x()', fingerprint: 'b' }],
    ['tool_search_call', { arguments: {} }, { arguments: { query: 'a' } }],
  ])('the reader accepts a %s whose empty members are filled at its end', (type, start, end) => {
    const itemOf = (verb: string, members: object): JsonObject => ({
      type: `response.output_item.${verb}`,
      output_index: 0,
      item: { id: 'x_1', type, ...members },
    })
    const events = [...STREAM.slice(0, 2), itemOf('added', start), itemOf('done', end)]
    expect(read(events).code).toBeNull()
    expect(read([...events.slice(0, 2), itemOf('added', end), itemOf('done', start)]).code).toBe(
      'changed_identity',
    )
  })

  it.each([
    ['mcp_approval_request', { arguments: '{"cmd":"ls"}' }, { arguments: '{"cmd":"rm -rf /"}' }],
    ['tool_search_call', { arguments: { query: 'a' } }, { arguments: { query: 'b' } }],
    ['unknown_call', { code: 'a' }, { code: 'b' }],
    ['unknown_call', { action: { env: { A: '1' } } }, { action: {} }],
  ])('the reader refuses a %s that changes without deltas', (type, start, end) => {
    const events = [start, end].map((members, at) => ({
      type: `response.output_item.${at === 0 ? 'added' : 'done'}`,
      output_index: 0,
      item: { id: 'x_1', type, ...members },
    }))
    expect(read([...STREAM.slice(0, 2), ...events]).code).toBe('changed_identity')
  })

  it('the reader accepts a model that is stated only at the end, as llama.cpp does', () => {
    const [{ response } = {}] = STREAM
    const { model: _, ...first } = response as JsonObject
    const events = STREAM.map((event) =>
      event.type === 'response.created' || event.type === 'response.in_progress'
        ? { ...event, response: first }
        : event,
    )
    expect(read(events).code).toBeNull()
    const other = { ...first, model: 'm2' }
    const twice = events.map((event) =>
      event.type === 'response.in_progress' ? { ...event, response: other } : event,
    )
    expect(read(twice).code).toBe('changed_identity')
  })

  it('the reader refuses an event whose name is not its type', () => {
    const reader = new ResponsesReader()
    const [data] = STREAM as readonly [JsonObject]
    expect(() => reader.read({ event: 'ping', data })).toThrow(
      expect.objectContaining({ code: 'changed_type' }),
    )
  })

  it('writes the name of an event that the provider left out', () => {
    const [data] = STREAM as readonly [JsonObject]
    expect(new ResponsesReader().read({ event: '', data })).toEqual([
      { event: 'response.created', data },
    ])
  })

  it('the reader gives a failure as its provider states it', () => {
    const reader = new ResponsesReader()
    const failed = {
      type: 'response.failed',
      response: {
        ...(STREAM[0]?.response as JsonObject),
        status: 'failed',
        error: { code: 'server_error', message: 'out of memory' },
      },
    }
    expect(readAll(reader, [...STREAM.slice(0, 11), failed]).code).toBeNull()
    expect(reader.isEnded).toBe(true)
    expect(reader.response()).toMatchObject({
      status: 'failed',
      output: [{ id: 'rs_1' }, { id: 'msg_1', status: 'incomplete' }],
    })
    const { given } = readAll(new ResponsesReader(), [...STREAM.slice(0, 11), failed])
    expect(readAll(new ResponsesReader(), dataOf(given)).given).toEqual(given)
  })
})

describe('any stream of Responses', () => {
  const pieces = fc.array(fc.string({ unit: 'binary', maxLength: 5 }), { maxLength: 4 })
  const item = (id: number): fc.Arbitrary<BuiltItem> =>
    fc.oneof(
      pieces.map((texts): BuiltItem => ({ kind: 'message', id: `i_${id}`, pieces: texts })),
      pieces.map((texts): BuiltItem => ({ kind: 'reasoning', id: `i_${id}`, pieces: texts })),
      fc.dictionary(fc.string(), fc.string()).map((input): BuiltItem => {
        const text = JSON.stringify(input)
        return { kind: 'call', id: `i_${id}`, pieces: [text.slice(0, 3), text.slice(3)] }
      }),
    )
  const streams = fc
    .tuple(item(0), item(1), item(2))
    .chain((items) => fc.subarray(items))
    .map((items) => responsesStream(items))

  it('any stream is given out as it came, and read back alike', () => {
    fc.assert(
      fc.property(streams, (events) => {
        const { given, code } = read(events)
        expect(code).toBeNull()
        expect(dataOf(given)).toEqual(events)
      }),
    )
  })

  it('any stream says the same to every reader, however it was altered, or is refused', () => {
    const alterations = fc.array(
      fc.tuple(
        fc.constantFrom('drop', 'double', 'swap', 'edit', 'retype', 'rename'),
        fc.nat(),
        fc.nat(),
      ),
      { minLength: 1, maxLength: 3 },
    )
    let accepted = 0
    fc.assert(
      fc.property(streams, alterations, (events, edits) => {
        const altered = edits.reduce(alter, copy(events) as JsonObject[])
        const reader = new ResponsesReader()
        const { given, code } = readAll(reader, altered)
        if (code !== null || !reader.isEnded) return
        accepted += 1
        expect(new Set(responsesReadings(given)).size).toBe(1)
        // What is given out is settled: it passes as it is.
        expect(dataOf(read(dataOf(given)).given)).toEqual(dataOf(given))
      }),
      { numRuns: 1_000 },
    )
    expect(accepted).toBeGreaterThan(20)
  })

  function alter(
    events: readonly JsonObject[],
    [kind, first, second]: readonly [string, number, number],
  ): JsonObject[] {
    const at = first % Math.max(1, events.length)
    const other = second % Math.max(1, events.length)
    const event = events[at]
    if (event === undefined) return [...events]
    const replaced = (by: readonly JsonObject[]) => [
      ...events.slice(0, at),
      ...by,
      ...events.slice(at + 1),
    ]
    const text = JSON.stringify(event)
    if (kind === 'drop') return replaced([])
    if (kind === 'double') return replaced([event, event])
    if (kind === 'swap') {
      const swapped = [...events]
      swapped[at] = events[other] as JsonObject
      swapped[other] = event
      return swapped
    }
    if (kind === 'edit') return replaced([JSON.parse(text.replace(/"(text|delta)":"/, '$&X'))])
    if (kind === 'retype')
      return replaced([{ ...event, type: (events[other] as JsonObject).type ?? '' }])
    return replaced([JSON.parse(text.replaceAll(/i_\d/g, `i_${second % 3}`))])
  }
})
