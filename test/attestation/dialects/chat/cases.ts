import type { JsonObject } from '#attestation/json/value.ts'

/** What a provider or a backend sends, and the one thing that all readers then see. */
export type StreamCase = {
  readonly name: string
  /** Where it was reported. */
  readonly from?: string
  /** Events of the stream before `[DONE]`: JSON texts. */
  readonly events: readonly string[]
  /** The deltas that are given out after the opening, with the finish_reason where there is one. */
  readonly given: readonly JsonObject[]
  /** Of the end: the other side's word where it is another. */
  readonly stopReason?: string
}

/** What is refused, since two readers could take it in two ways. */
export type RefusedCase = Pick<StreamCase, 'name' | 'events'>

const choice = (delta: JsonObject, more: JsonObject = {}) =>
  JSON.stringify({
    id: 'c1',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'm',
    choices: [{ index: 0, delta, ...more }],
  })
const text = (content: string) => choice({ content })
const end = (reason = 'stop', delta: JsonObject = {}) => choice(delta, { finish_reason: reason })
const calls = (...list: readonly JsonObject[]) => choice({ tool_calls: list })

const ENDED: JsonObject = { content: '', finish_reason: 'stop' }
/** The end with a word that means `reason`. */
const ended = (word: string, reason: string): StreamCase => ({
  name: `the finish_reason "${word}"`,
  events: [text('Hi'), end(word)],
  given: [{ content: 'Hi' }, { content: '', finish_reason: reason }],
  stopReason: word,
})
const CALLED: JsonObject = { content: '', finish_reason: 'tool_calls' }
const begun = (index: number, id: string, name: string, args: string): JsonObject => ({
  index,
  id,
  type: 'function',
  function: { name, arguments: args },
})
const goesOn = (index: number, args: string): JsonObject => ({
  index,
  function: { arguments: args },
})
const given = (...list: readonly JsonObject[]): JsonObject => ({ tool_calls: list })

const NAMED: Readonly<Record<string, Omit<StreamCase, 'name'>>> = {
  'text and its end in one chunk': {
    events: [end('stop', { role: 'assistant', content: 'Hi' })],
    given: [{ content: 'Hi' }, ENDED],
  },
  'nulls, empty texts and a role in each chunk': {
    events: [
      choice({ role: 'assistant', content: null, refusal: null, tool_calls: [] }),
      choice({ role: 'assistant', content: 'Hi', reasoning: '' }),
      end('stop', { role: 'assistant', content: '' }),
    ],
    given: [{ content: 'Hi' }, ENDED],
  },
  'another finish_reason, with an empty text': {
    events: [text('Hi'), end(), end('length', { content: '' })],
    given: [{ content: 'Hi' }, ENDED],
  },
  'a finish_reason twice, the second time with nothing': {
    from: 'https://github.com/sgl-project/sglang/pull/8417',
    events: [text('Hi'), end(), end('stop', { content: '' })],
    given: [{ content: 'Hi' }, ENDED],
  },
  'a choice without an index': {
    from: 'https://github.com/songquanpeng/one-api/issues/1037',
    events: [
      JSON.stringify({ object: 'chat.completion.chunk', choices: [{ delta: { content: 'Hi' } }] }),
      JSON.stringify({
        object: 'chat.completion.chunk',
        choices: [{ delta: {}, finish_reason: 'stop' }],
      }),
    ],
    given: [{ content: 'Hi' }, ENDED],
  },
  'an end without a delta': {
    events: [
      text('Hi'),
      JSON.stringify({
        object: 'chat.completion.chunk',
        choices: [{ index: 0, finish_reason: 'stop' }],
      }),
    ],
    given: [{ content: 'Hi' }, ENDED],
  },
  'empty data that keeps the connection': {
    from: 'https://github.com/NousResearch/hermes-agent/pull/112183',
    events: [text('Hi'), '', ' ', end()],
    given: [{ content: 'Hi' }, ENDED],
  },
  'a chunk without choices between two with': {
    events: [text('H'), JSON.stringify({ object: 'chat.completion.chunk' }), text('i'), end()],
    given: [{ content: 'H' }, { content: 'i' }, ENDED],
  },
  'tool calls that are numbered from 1': {
    from: 'https://github.com/vercel/ai/issues/18333',
    events: [calls(begun(1, 'a', 'f', '')), calls(goesOn(1, '{}')), end('tool_calls')],
    given: [given(begun(0, 'a', 'f', '')), given(goesOn(0, '{}')), CALLED],
  },
  'tool calls that are numbered 0 and 2': {
    from: 'https://github.com/BerriAI/litellm/issues/5231',
    events: [
      calls(begun(0, 'a', 'f', '{}')),
      calls(begun(2, 'b', 'g', '[')),
      calls(goesOn(2, ']')),
      end('tool_calls'),
    ],
    given: [
      given(begun(0, 'a', 'f', '{}')),
      given(begun(1, 'b', 'g', '[')),
      given(goesOn(1, ']')),
      CALLED,
    ],
  },
  'another id in each delta of one tool call': {
    from: 'https://github.com/cubist38/mlx-openai-server/pull/216',
    events: [
      calls(begun(0, 'a', 'f', '')),
      calls({ index: 0, id: 'b', type: 'function', function: { arguments: '{' } }),
      calls({ index: 0, id: 'c', type: 'function', function: { arguments: '}' } }),
      end('tool_calls'),
    ],
    given: [given(begun(0, 'a', 'f', '')), given(goesOn(0, '{')), given(goesOn(0, '}')), CALLED],
  },
  'tool calls of one index, told apart by id and name': {
    events: [calls(begun(0, 'a', 'f', '1'), begun(0, 'b', 'f', '2')), end('tool_calls')],
    given: [given(begun(0, 'a', 'f', '1'), begun(1, 'b', 'f', '2')), CALLED],
  },
  'tool calls without an index, each new id a call of its own': {
    events: [
      calls({ id: 'a', function: { name: 'f', arguments: '{' } }),
      calls({ function: { arguments: '}' } }),
      calls(
        { id: 'b', function: { name: 'f', arguments: '[]' } },
        { id: 'd', function: { name: 'h' } },
      ),
      calls({ id: 'd', function: { arguments: ' ' } }),
      end('tool_calls'),
    ],
    given: [
      given(begun(0, 'a', 'f', '{')),
      given(goesOn(0, '}')),
      given(begun(1, 'b', 'f', '[]'), begun(2, 'd', 'h', '')),
      given(goesOn(2, ' ')),
      CALLED,
    ],
  },
  'the id, type and name of a tool call again with each delta': {
    events: [
      calls(begun(0, 'a', 'f', 'x')),
      calls(begun(0, 'a', 'f', 'x'), begun(0, 'a', 'f', 'x')),
      end('tool_calls'),
    ],
    given: [given(begun(0, 'a', 'f', 'x')), given(goesOn(0, 'xx')), CALLED],
  },
  'empty ids, types and names before those of a tool call': {
    events: [
      calls({ index: 0, id: '', type: '', function: { name: '', arguments: '{' } }),
      calls(begun(0, 'a', 'f', '}')),
      end('tool_calls'),
    ],
    given: [given(begun(0, 'a', 'f', '{}')), CALLED],
  },
  'a tool call of index 1 after three of index 0': {
    events: [
      calls(begun(0, 'a', 'f', '{}'), begun(0, 'b', 'f', '[')),
      calls(goesOn(0, ']')),
      calls(begun(0, 'c', 'g', '1')),
      calls({ index: 1, id: 'd', function: { name: 'h', arguments: '2' } }),
      end('tool_calls'),
    ],
    given: [
      given(begun(0, 'a', 'f', '{}'), begun(1, 'b', 'f', '[')),
      given(goesOn(1, ']')),
      given(begun(2, 'c', 'g', '1')),
      given(begun(3, 'd', 'h', '2')),
      CALLED,
    ],
  },
  'a tool call whose arguments come before its name': {
    events: [
      calls(goesOn(0, '{')),
      calls({ index: 0, id: 'a', function: { name: 'f', arguments: '}' } }),
      end('tool_calls'),
    ],
    given: [given(begun(0, 'a', 'f', '{}')), CALLED],
  },
  'a function_call whose name comes again': {
    events: [
      choice({ function_call: { name: 'f', arguments: '{' } }),
      choice({ function_call: { name: 'f', arguments: '}' } }),
      end('function_call'),
    ],
    given: [
      { function_call: { name: 'f', arguments: '{' } },
      { function_call: { arguments: '}' } },
      { content: '', finish_reason: 'function_call' },
    ],
  },
  'an id of sound that comes with each part': {
    from: 'https://github.com/langchain-ai/langchainjs/issues/8487',
    events: [
      choice({ audio: { id: 'audio_1', format: 'wav', data: 'QQ' } }),
      choice({ audio: { id: 'audio_1', format: 'wav', data: '==' } }),
      choice({ audio: { id: 'audio_1', expires_at: 7 } }),
      end(),
    ],
    given: [
      { audio: { id: 'audio_1', format: 'wav', data: 'QQ' } },
      { audio: { data: '==' } },
      { audio: { expires_at: 7 } },
      ENDED,
    ],
  },
  'empty lists in each delta, before and after the end': {
    events: [
      choice({ content: 'Hi', annotations: [], reasoning_details: [] }),
      choice({ audio: { id: 'a', data: '', parts: [], more: {} } }),
      end('stop', { content: '', annotations: [] }),
      end('stop', { content: '', images: [], audio: { id: 'a', data: '', parts: [] } }),
      choice({ role: 'assistant', content: '', reasoning_details: [] }, { finish_reason: null }),
    ],
    given: [{ content: 'Hi' }, { audio: { id: 'a' } }, ENDED],
  },
  'an id, a name and a type of the delta that come with each chunk': {
    events: [
      choice({ id: 'msg_1', name: 'bot', type: 'text', n: 7, content: 'a' }),
      choice({ id: '', name: 'bot', type: 'text', n: 7, content: 'b' }),
      choice({ id: 'msg_1', name: '', type: 'text', n: 8, content: 'c' }),
      end(),
      end('stop', { id: 'msg_1', name: 'bot', type: 'text', n: 8 }),
    ],
    given: [
      { id: 'msg_1', name: 'bot', type: 'text', n: 7, content: 'a' },
      { content: 'b' },
      { n: 8, content: 'c' },
      ENDED,
    ],
  },
  'empty ids of sound between equal ids, with a voice and a media type': {
    events: [
      choice({ audio: { id: '', voice: 'alloy', mime_type: 'audio/wav' } }),
      choice({ audio: { id: 'a', voice: 'alloy', mime_type: 'audio/wav', data: 'QQ' } }),
      choice({ audio: { id: '', voice: 'alloy', data: 'QQ' } }),
      choice({ audio: { id: 'a', voice: 'alloy', data: '==' } }),
      end(),
    ],
    given: [
      { audio: { voice: 'alloy', mime_type: 'audio/wav' } },
      { audio: { id: 'a', data: 'QQ' } },
      { audio: { data: 'QQ' } },
      { audio: { data: '==' } },
      ENDED,
    ],
  },
  'halves of a character in two chunks': {
    from: 'https://github.com/elizaOS/eliza/issues/30904',
    events: [
      '{"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}',
      '{"choices":[{"index":0,"delta":{"reasoning":"\\ud83d","content":"\\ude00b"}}]}',
      '{"choices":[{"index":0,"delta":{"reasoning":"\\ude01"}}]}',
      end(),
    ],
    given: [{ content: 'a' }, { content: '\u{1F600}b' }, { reasoning: '\u{1F601}' }, ENDED],
  },
  'halves of a character in the arguments of a call': {
    events: [
      '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"\\ud83d"}}]}}]}',
      '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\ude00"}}]}}]}',
      end('tool_calls'),
    ],
    given: [given(begun(0, 'a', 'f', '')), given(goesOn(0, '\u{1F600}')), CALLED],
  },
  'half a character that nothing completes': {
    events: ['{"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}', text('b'), end()],
    given: [{ content: 'a' }, { content: '\ufffdb' }, ENDED],
  },
  'half a character at the end': {
    events: ['{"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}', end()],
    given: [{ content: 'a' }, { content: '\ufffd' }, ENDED],
  },
  'text after content parts': {
    events: [
      choice({ content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'Hm' }] }] }),
      text('Hi'),
      end(),
    ],
    given: [
      { content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'Hm' }] }] },
      { content: [{ type: 'text', text: 'Hi' }] },
      ENDED,
    ],
  },
  'a member called __proto__': {
    events: [
      '{"choices":[{"index":0,"delta":{"content":"Hi","__proto__":{"content":"x"}}}]}',
      end(),
    ],
    given: [{ content: 'Hi' }, ENDED],
  },
  'a tool call twice in a chunk': {
    events: [
      calls(begun(0, 'a', 'f', ''), goesOn(0, '{'), goesOn(0, '}')),
      calls(goesOn(0, ' '), goesOn(0, ' ')),
      end('tool_calls'),
    ],
    given: [given(begun(0, 'a', 'f', '{}')), given(goesOn(0, '  ')), CALLED],
  },
  'members of a tool call before its name': {
    events: [
      calls({ index: 0, extra: { sign: 'ab' }, function: { kind: 'x', arguments: '{' } }),
      calls({ index: 0, id: 'a', extra: { sign: 'cd' }, function: { name: 'f', arguments: '}' } }),
      end('tool_calls'),
    ],
    given: [
      given({
        ...begun(0, 'a', 'f', '{}'),
        extra: { sign: 'abcd' },
        function: { name: 'f', arguments: '{}', kind: 'x' },
      }),
      CALLED,
    ],
  },
  // langchain-openai for Python, _convert_chunk_to_generation_chunk.
  'a type and a chunk that some readers heed': {
    events: [
      JSON.stringify({
        type: 'content.delta',
        choices: [{ index: 0, delta: { content: 'not ' } }],
      }),
      text('guilty'),
      JSON.stringify({ choices: [], chunk: { choices: [{ delta: { content: ' at all' } }] } }),
      end(),
    ],
    given: [{ content: 'not ' }, { content: 'guilty' }, ENDED],
  },
  // The AI SDK takes no delta of a call without its function.
  'a delta of a call without its function': {
    events: [
      calls(begun(0, 'a', 'f', '{')),
      calls({ index: 0, extra_content: { google: { thought_signature: 's' } } }),
      calls(goesOn(0, '}')),
      end('tool_calls'),
    ],
    given: [
      given(begun(0, 'a', 'f', '{')),
      given({ ...goesOn(0, ''), extra_content: { google: { thought_signature: 's' } } }),
      given(goesOn(0, '}')),
      CALLED,
    ],
  },
  'half a character at the end of content parts': {
    events: [
      choice({ content: [{ type: 'text', text: 'a' }] }),
      '{"choices":[{"index":0,"delta":{"content":"x\\ud83d"}}]}',
      end(),
    ],
    given: [
      { content: [{ type: 'text', text: 'a' }] },
      { content: [{ type: 'text', text: 'x' }] },
      ENDED,
    ],
  },
  'a number that comes with each part': {
    events: [choice({ audio: { expires_at: 7 } }), choice({ audio: { expires_at: 7 } }), end()],
    given: [{ audio: { expires_at: 7 } }, ENDED],
  },
  'content parts with an index': {
    events: [choice({ content: [{ index: 0, type: 'text', text: 'Hi' }] }), end()],
    given: [{ content: [{ type: 'text', text: 'Hi' }] }, ENDED],
  },
}

export const STREAM_CASES: readonly StreamCase[] = [
  ...Object.entries(NAMED).map(([name, one]) => ({ name, ...one })),
  // https://github.com/openai/openai-dotnet/issues/267; the last is in no table.
  ...['eos', 'STOP', 'matched_pattern'].map((word) => ended(word, 'stop')),
  ...[
    'MAX_TOKENS',
    'max_completion_tokens',
    'maximum_tokens',
    'token_limit',
    'context_length_exceeded',
    'not_finished',
    'maxTokens',
    'model_context_window_exceeded',
  ].map((word) => ended(word, 'length')),
  ...[
    'guardrail_intervened',
    'content-filter',
    'moderation',
    'SAFETY',
    'content_filter: RECITATION',
  ].map((word) => ended(word, 'content_filter')),
  ...['tool-calls', 'toolUse', 'toolCalls', 'toolcalls', 'tool_calls ', 'TOOL_CALL'].map((word) =>
    ended(word, 'tool_calls'),
  ),
]

const REFUSED: Readonly<Record<string, readonly string[]>> = {
  'a tool call of another type': [
    text('Hi'),
    calls({ index: 0, id: 'a', type: 'custom', custom: { name: 'f', input: 'x' } }),
    end('tool_calls'),
  ],
  'text after the finish_reason': [text('Hi'), end(), text('more')],
  'calls of both forms': [
    choice({ function_call: { name: 'f', arguments: '{}' } }),
    calls({ index: 0, id: 'a', function: { name: 'g', arguments: '{}' } }),
    end('tool_calls'),
  ],
  'one choice twice in a chunk': [
    JSON.stringify({ choices: ['H', 'i'].map((content) => ({ index: 0, delta: { content } })) }),
    end(),
  ],
  'a tool call that begins before the one that came first': [
    calls(goesOn(0, '{}')),
    calls({ index: 1, id: 'b', function: { name: 'g', arguments: '' } }),
    calls({ index: 0, id: 'a', function: { name: 'f' } }),
    end('tool_calls'),
  ],
  'a member of a tool call that goes on as another type': [
    calls({ index: 0, id: 'a', extra: 'x', function: { name: 'f' } }),
    calls({ index: 0, extra: ['x'] }),
    end('tool_calls'),
  ],
  'a second name of one tool call': [
    calls({ index: 0, id: 'a', function: { name: 'refund' } }),
    calls({ index: 0, function: { name: 'charge' } }),
    end('tool_calls'),
  ],
  'a tool call that never has a name': [
    text('Hi'),
    calls({ index: 0, id: 'a' }),
    end('tool_calls'),
  ],
  'arguments that are no text': [
    text('Hi'),
    calls({ index: 0, function: { name: 'f', arguments: {} } }),
    end(),
  ],
  'content parts after text': [text('Hi'), choice({ content: [{ a: 1 }] }), end()],
  'a choice that was not asked for': [
    text('Hi'),
    JSON.stringify({ choices: [{ index: 1, delta: { content: ' not' } }] }),
    end(),
  ],
}

export const REFUSED_CASES: readonly RefusedCase[] = [
  ...Object.entries(REFUSED).map(([name, events]) => ({ name, events })),
  ...[
    'abort',
    'ERROR',
    'function_call_filter: MALFORMED_FUNCTION_CALL',
    'insufficient_system_resource',
    'network_error',
    'timed_out',
  ].map((word) => ({
    name: `the finish_reason ${word}`,
    events: [text('Hi'), end(word)],
  })),
  ...[
    ['text', 'a', { x: 1 }],
    ['list', [{ x: 1 }], 'a'],
    ['object', { x: 'a' }, { x: 1 }],
  ].map(([kind, before, after]) => ({
    name: `a ${kind} that goes on as another type`,
    events: [choice({ reasoning: before ?? null }), choice({ reasoning: after ?? null }), end()],
  })),
]
