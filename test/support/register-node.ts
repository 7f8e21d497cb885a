import { getPath } from './calls.ts'
import type { TestGateway } from './gateway.ts'

/**
 * What an agent reports about a machine with a GPU (body of `POST /v1/node/info`, without node_id).
 */
export const NODE_HARDWARE = {
  gpu_model: 'NVIDIA GeForce RTX 4090',
  vram: 24_564,
  gpu_count: 1,
  cpu_model: 'AMD EPYC 7B13',
  cpu_count: 16,
  ram: 64_000,
  power_limit: 450,
  network_download_speed: 940.5,
  network_upload_speed: 880,
  operating_system: 'Linux-6.8.0-x86_64-with-glibc2.39',
  version: '0.0.19',
}

type Caller = Pick<TestGateway, 'url' | 'key'>

/** Sends JSON (a value, or bytes and texts as they are) with the caller's key. */
export function sendBody(
  { url, key }: Caller,
  method: 'POST' | 'PUT' | 'DELETE',
  path: string,
  body: unknown,
): Promise<Response> {
  return fetch(url + path, {
    method,
    body:
      typeof body === 'string' || body instanceof Uint8Array
        ? (body as string)
        : JSON.stringify(body),
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
  })
}

/** Registers a node and gives its id. */
export async function createNode(caller: Caller, name = 'my node'): Promise<string> {
  const reply = await sendBody(caller, 'POST', '/v1/dashboard/node', { node_name: name })
  const { node_id: nodeId } = (await reply.json()) as { node_id: string }
  return nodeId
}

/**
 * Registers a node that may connect: its hardware is reported, and it has a benchmark for each
 * model.
 */
export async function createMeasuredNode(
  caller: Caller,
  models: readonly string[],
): Promise<string> {
  const nodeId = await createNode(caller)
  await sendBody(caller, 'POST', '/v1/node/info', { node_id: nodeId, ...NODE_HARDWARE })
  for (const model of models)
    await sendBody(caller, 'POST', '/v1/node/benchmark', {
      node_id: nodeId,
      model_name: model,
      tokens_per_second: 100,
    })
  return nodeId
}

/** JSON of a GET with the caller's key. */
export async function getJson(caller: Caller, path: string): Promise<Record<string, unknown>> {
  return (await (await getPath(caller, path)).json()) as Record<string, unknown>
}

/** A node id: words of the English BIP-39 list, joined by `_`. */
export const NODE_ID_FORM = /^[a-z]{3,8}(_[a-z]{3,8}){4}$/
