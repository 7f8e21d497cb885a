import { NODE_HARDWARE } from '../register-node.ts'

/** An account that no request deletes. */
export const BUDGETED = 'budgeted'

const user = { role: 'user', content: 'hello' }
const tool = {
  type: 'function',
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } } },
  },
}
const called = {
  id: 'call_1',
  type: 'function',
  function: { name: 'get_weather', arguments: '{"city":"Oslo"}' },
}

const CHAT: readonly object[] = [
  { messages: [user] },
  { messages: [user], stream: true, stream_options: { include_usage: true } },
  {
    messages: [{ role: 'system', content: 'be brief' }, user],
    temperature: 1,
    top_p: 0.5,
    n: 2,
    seed: 7,
    stop: ['a', 'b'],
    logprobs: true,
    top_logprobs: 2,
    max_tokens: 9,
    frequency_penalty: -1,
    presence_penalty: 1,
    user: 'me',
    logit_bias: { 50256: -100 },
  },
  { messages: [user], tools: [tool], tool_choice: 'required', stream: true },
  {
    messages: [user],
    tools: [tool],
    tool_choice: { type: 'function', function: { name: 'get_weather' } },
  },
  {
    messages: [
      user,
      { role: 'assistant', content: null, tool_calls: [called] },
      { role: 'tool', tool_call_id: 'call_1', content: 'rain' },
    ],
    tools: [tool],
  },
  {
    messages: [user],
    response_format: {
      type: 'json_schema',
      json_schema: {
        name: 'answer',
        strict: true,
        schema: { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] },
      },
    },
  },
  {
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'look' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA', detail: 'low' } },
        ],
      },
    ],
  },
  {
    messages: [{ role: 'function', name: 'f', content: 'done' }],
    functions: [{ name: 'f' }],
    function_call: 'auto',
  },
].map((body) => ({ model: 'demo/echo', ...body }))

const RESPONSES: readonly object[] = [
  { input: 'hello' },
  { input: [user], stream: true, store: false, reasoning: { effort: 'low' } },
].map((body) => ({ model: 'demo/echo', ...body }))

const MESSAGES: readonly object[] = [{}, { stream: true, system: 'be brief' }].map((more) => ({
  model: 'demo/echo',
  max_tokens: 50,
  messages: [user],
  ...more,
}))

/** Bodies that the service accepts, by path. `nodeId` is a node of the caller's. */
export function examplesFor(path: string, nodeId: string): readonly object[] {
  if (path.endsWith('/chat/completions')) return CHAT
  if (path.endsWith('/responses')) return RESPONSES
  if (/\/messages(?:\/count_tokens)?$/.test(path)) return MESSAGES
  switch (path) {
    case '/v1/embeddings':
      return ['a whale', ['a', 'b'], [1, 2], [[1], [2, 3]]].flatMap((input) => [
        { model: 'demo/embedding', input },
        { model: 'demo/embedding', input, encoding_format: 'base64', dimensions: 3, user: 'me' },
      ])
    case '/v1/images/generations':
      return [
        {
          model: 'demo/image',
          prompt: 'a whale',
          size: '256x256',
          n: 1,
          response_format: 'b64_json',
          style: 'vivid',
        },
      ]
    case '/v1/tool/search':
      return [{ query: 'whales', max_results: 3 }]
    case '/v1/node/info':
      return [{ node_id: nodeId, ...NODE_HARDWARE }]
    case '/v1/node/benchmark':
      return [{ node_id: nodeId, model_name: 'a-model', tokens_per_second: 5.5 }]
    case '/v1/dashboard/node':
      return [
        { node_name: 'a node' },
        { node_id: nodeId, node_name: 'renamed', is_archived: false },
      ]
    case '/v1/admin/budgets':
      return [{ account: BUDGETED, what: 'tokens', per: 'month', bound: 1_000_000 }]
    case '/v1/dashboard/keys':
      return [{ name: 'a key', scopes: ['inference'], expires_at: 253_402_300_799 }]
    default:
      return []
  }
}
