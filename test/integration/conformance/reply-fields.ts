import type { ReplyFields } from './missing-fields.ts'

const CHOICE_FIELDS: ReplyFields = {
  choices: 'array',
  'choices[].finish_reason': 'string',
  'choices[].index': 'integer',
  'choices[].logprobs': 'object or null',
  'choices[].message': 'object',
  'choices[].message.role': 'string',
  'choices[].message.content': 'string or null',
  'choices[].message.refusal': 'string or null',
  'choices[].message.audio': 'object or null',
}

const USAGE_FIELDS: ReplyFields = {
  usage: 'object',
  'usage.completion_tokens': 'integer',
  'usage.prompt_tokens': 'integer',
  'usage.total_tokens': 'integer',
  'usage.completion_tokens_details.accepted_prediction_tokens': 'integer',
  'usage.completion_tokens_details.audio_tokens': 'integer',
  'usage.completion_tokens_details.reasoning_tokens': 'integer',
  'usage.completion_tokens_details.rejected_prediction_tokens': 'integer',
  'usage.prompt_tokens_details.audio_tokens': 'integer',
  'usage.prompt_tokens_details.cached_tokens': 'integer',
}

/** Interface, 2.2. */
export const COMPLETION_FIELDS: ReplyFields = {
  id: 'string',
  ...CHOICE_FIELDS,
  created: 'integer',
  model: 'string',
  object: 'string',
  service_tier: 'string or null',
  system_fingerprint: 'string or null',
  ...USAGE_FIELDS,
}

/** Interface, 2.2: a completion with log probabilities. */
export const LOGPROB_FIELDS: ReplyFields = {
  'choices[].logprobs.content': 'array',
  'choices[].logprobs.content[].token': 'string',
  'choices[].logprobs.content[].bytes': 'array or null',
  'choices[].logprobs.content[].logprob': 'number',
  'choices[].logprobs.content[].top_logprobs': 'array',
  'choices[].logprobs.content[].top_logprobs[].token': 'string',
  'choices[].logprobs.content[].top_logprobs[].bytes': 'array or null',
  'choices[].logprobs.content[].top_logprobs[].logprob': 'number',
}

/** Interface, 2.2: a completion that calls a tool. */
export const TOOL_CALL_FIELDS: ReplyFields = {
  'choices[].message.tool_calls': 'array',
  'choices[].message.tool_calls[].id': 'string',
  'choices[].message.tool_calls[].type': 'string',
  'choices[].message.tool_calls[].function.arguments': 'string',
  'choices[].message.tool_calls[].function.name': 'string',
}

/** Interface, 2.3: the members of a verified completion beyond 2.2. */
export const PROOF_FIELDS: ReplyFields = {
  hash: 'string',
  public_key: 'string',
  signature: 'string',
  tx_hash: 'string',
  attestation: 'string',
}

/** Interface, 2.3. */
export const VERIFIED_FIELDS: ReplyFields = { ...COMPLETION_FIELDS, ...PROOF_FIELDS }

/** Interface, 2.4: the echo of a request. A member that the request did not set is null. */
const ECHO_FIELDS: ReplyFields = {
  model: 'string',
  'messages[].content': 'string or array or null',
  'messages[].role': 'string',
  'messages[].function_call': 'object or null',
  'messages[].name': 'string or null',
  frequency_penalty: 'number or null',
  logit_bias: 'object or null',
  logprobs: 'boolean or null',
  top_logprobs: 'integer or null',
  max_tokens: 'integer or null',
  n: 'integer or null',
  presence_penalty: 'number or null',
  response_format: 'object or null',
  seed: 'integer or null',
  stop: 'string or array or null',
  stream: 'boolean or null',
  stream_options: 'object or null',
  temperature: 'number or null',
  top_p: 'number or null',
  tools: 'array or null',
  tool_choice: 'string or object or null',
  user: 'string or null',
}

/** Interface, 2.4: the record of a completion. */
export const RECORD_FIELDS: ReplyFields = {
  id: 'string',
  ...Object.fromEntries(
    Object.entries(ECHO_FIELDS).map(([field, type]) => [`request.${field}`, type]),
  ),
  ...Object.fromEntries(
    Object.entries(COMPLETION_FIELDS).map(([field, type]) => [`response.${field}`, type]),
  ),
  ...PROOF_FIELDS,
  created_at: 'integer',
}

/** Interface, 2.4: the list of records. */
export const RECORD_LIST_FIELDS: ReplyFields = {
  ...Object.fromEntries(
    Object.entries(RECORD_FIELDS).map(([field, type]) => [`completions[].${field}`, type]),
  ),
  cursor: 'string',
}

/** Interface, 2.2: a streamed chunk. */
export const CHUNK_FIELDS: ReplyFields = {
  id: 'string',
  choices: 'array',
  'choices[].delta': 'object',
  'choices[].finish_reason': 'string or null',
  'choices[].index': 'integer',
  'choices[].logprobs': 'object or null',
  created: 'integer',
  model: 'string',
  object: 'string',
  usage: 'null',
}

/** Interface, 2.7: a node that reported its hardware. */
export const NODE_INFO_FIELDS: ReplyFields = {
  node_id: 'string',
  operating_system: 'string',
  name_alias: 'string',
  status: 'string',
  node_created_at: 'integer',
  gpu_model: 'string',
  vram: 'integer',
  gpu_count: 'integer',
  cpu_model: 'string',
  cpu_count: 'integer',
  ram: 'integer',
  power_limit: 'integer',
  network_download_speed: 'number',
  network_upload_speed: 'number',
  version: 'string',
  run_duration_seconds: 'integer',
}

/** Interface, 2.7, and facts: the list of nodes. */
export const NODE_LIST_FIELDS: ReplyFields = {
  response: 'string',
  ...Object.fromEntries(
    Object.keys(NODE_INFO_FIELDS).map((field) => [
      `nodes[].${field}`,
      `${NODE_INFO_FIELDS[field]} or null`,
    ]),
  ),
  'nodes[].total_uptime_seconds': 'integer or null',
  'nodes[].requests_served': 'integer',
  'nodes[].requests_served_day': 'integer',
  'nodes[].is_archived': 'boolean',
  'nodes[].node_created_at': 'integer',
  'nodes[].benchmark_tokens_per_second': 'number or null',
}

/** Interface, 2.7: the statistics of a node that served calls. */
export const NODE_STATS_FIELDS: ReplyFields = {
  requests_served: 'integer',
  requests_served_day: 'integer',
  average_time_to_first_token: 'number',
  benchmark_tokens_per_second: 'number',
  benchmark_model_name: 'string',
  benchmark_created_at: 'integer',
  completed_inferences: 'array',
  'completed_inferences[].model_name': 'string',
  'completed_inferences[].prompt_tokens': 'integer',
  'completed_inferences[].completion_tokens': 'integer',
  'completed_inferences[].total_tokens': 'integer',
  'completed_inferences[].created_at': 'integer',
}

/** Interface, 2.6. */
export const EMBEDDING_FIELDS: ReplyFields = {
  data: 'array',
  'data[].embedding': 'array',
  'data[].index': 'integer',
  'data[].object': 'string',
  model: 'string',
  object: 'string',
  usage: 'object',
}

/** Interface, 2.5. */
export const IMAGE_FIELDS: ReplyFields = {
  created: 'integer',
  data: 'array',
  'data[].b64_json': 'string or null',
  'data[].revised_prompt': 'string or null',
  'data[].url': 'string or null',
}

/** Facts: the results of a search, in the form of this service. */
export const SEARCH_FIELDS: ReplyFields = {
  'results[].title': 'string',
  'results[].url': 'string',
  'results[].snippet': 'string',
  'results[].position': 'integer',
}

/** Interface, 2.7: a new node. */
export const CREATED_NODE_FIELDS: ReplyFields = { response: 'string', node_id: 'string' }

/** Facts: a changed node. */
export const UPDATED_NODE_FIELDS: ReplyFields = {
  is_name_updated: 'boolean',
  is_archival_status_updated: 'boolean',
}

/** Interface, 2.7: a benchmark. */
export const BENCHMARK_FIELDS: ReplyFields = {
  node_id: 'string',
  model_name: 'string',
  tokens_per_second: 'number',
}

/** Interface, 2.8. */
export const INFORMATION_FIELDS: ReplyFields = { title: 'string', description: 'string' }

/** Facts: a report was accepted. */
export const DONE_FIELDS: ReplyFields = { response: 'string' }

/** Facts: models, for both kinds of clients. */
export const MODEL_FIELDS: ReplyFields = {
  object: 'string',
  data: 'array',
  'data[].id': 'string',
  'data[].name': 'string',
  'data[].object': 'string',
  'data[].created': 'integer',
  'data[].owned_by': 'string',
  'data[].context_length': 'integer or null',
  'data[].max_completion_tokens': 'integer or null',
  'data[].pricing.prompt': 'string',
  'data[].pricing.completion': 'string',
  'data[].pricing.image': 'string',
  'data[].pricing.request': 'string',
}

/** Facts: rate limits. */
export const RATE_LIMIT_FIELDS: ReplyFields = {
  usage_tier_name: 'string',
  usage_tier_description: 'string',
  credits_balance: 'string or null',
  'usages[].model': 'string',
  'usages[].full_model': 'string',
  'usages[].price_per_million_tokens': 'string or null',
  ...Object.fromEntries(
    [
      'max_requests_per_day',
      'max_requests_per_minute',
      'max_tokens_per_day',
      'max_tokens_per_minute',
      'requests_left_day',
      'tokens_left_day',
    ].map((field) => [`usages[].${field}`, 'integer or null']),
  ),
  'usages[].requests_used_day': 'integer',
  'usages[].tokens_used_day': 'integer',
}

/** Facts: the network. */
export const NETWORK_FIELDS: ReplyFields = {
  nodes_count: 'integer',
  connected_nodes_count: 'integer',
  network_throughput: 'string',
  inference_count_day: 'integer',
  'network_models_stats[].model_name': 'string',
  'network_models_stats[].throughput': 'string',
}
