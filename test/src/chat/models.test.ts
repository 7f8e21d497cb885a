import Anthropic from '@anthropic-ai/sdk'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { NODE_MODELS_LISTED_MAX } from '#src/chat/models.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { createScriptedDispatcher } from '../../support/scripted-dispatcher.ts'

const nodes = createScriptedDispatcher()
let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway({
    nodes,
    settings: { providerModels: ['gpt-mini', 'nobodys/model', 'llama'] },
  })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(() => gateway.stop(), GATEWAY_HOOK_TIMEOUT_MS)

type Listed = { readonly id: string; readonly owned_by: string }

async function list(): Promise<readonly Listed[]> {
  const reply = await fetch(`${gateway.url}/v1/models`)
  expect(reply.status).toBe(200)
  return ((await reply.json()) as { data: readonly Listed[] }).data
}

const owners = async () => (await list()).map(({ id, owned_by: owner }) => `${id} of ${owner}`)

it('the list of models needs no key, and has the union of both shapes', async () => {
  nodes.setModels(['llama'])
  const reply = await fetch(`${gateway.url}/v1/models`)
  expect(await reply.json()).toEqual({
    object: 'list',
    data: expect.arrayContaining([
      {
        id: 'llama',
        object: 'model',
        created: expect.any(Number),
        owned_by: 'nodes',
        name: 'llama',
        context_length: null,
        max_completion_tokens: null,
        pricing: { prompt: '0', completion: '0', image: '0', request: '0' },
      },
    ]),
  })
})

it('the list of models has the form of Anthropic for its clients', async () => {
  nodes.setModels(['llama'])
  const client = new Anthropic({ baseURL: gateway.url, apiKey: gateway.key })
  const listed = []
  for await (const model of client.models.list({ limit: 1 })) listed.push(model)
  const described = { type: 'model', created_at: expect.stringMatching(/Z$/) }
  expect(listed).toEqual([
    { ...described, id: 'llama', display_name: 'llama' },
    { ...described, id: 'gpt-mini', display_name: 'gpt-mini' },
  ])
  expect((await client.models.list()).first_id).toBe('llama')
  expect(await client.models.retrieve('llama')).toMatchObject({ type: 'model', id: 'llama' })
  await expect(client.models.retrieve('none')).rejects.toMatchObject({
    status: 404,
    error: { type: 'error', error: { type: 'not_found_error' } },
  })
})

it('the list of models has a bounded number of models of nodes, which name them as they like', async () => {
  nodes.setModels(
    Array.from({ length: NODE_MODELS_LISTED_MAX + 1 }, (_, number) => `made-up-${number}`),
  )
  const listed = await list()
  expect(listed.filter(({ owned_by: owner }) => owner === 'nodes')).toHaveLength(
    NODE_MODELS_LISTED_MAX,
  )
})

it('the list of models has the ids of the provider table in full, and no patterns', async () => {
  nodes.setModels([])
  gateway.enclave.setProviders([
    { name: 'one', origin: 'http://127.0.0.1:9', path: '/v1', models: ['exact-1', 'some-*'] },
  ])
  await expect.poll(owners, { timeout: 20_000, interval: 200 }).toEqual(['exact-1 of one'])
})

it('the list of models has the models of nodes while the enclave is away', async () => {
  nodes.setModels(['llama'])
  await gateway.enclave.stop()
  await expect.poll(owners, { timeout: 20_000, interval: 200 }).toEqual(['llama of nodes'])
})

it('one model is given by its id, also by an id with a slash', async () => {
  nodes.setModels(['some/llama'])
  const reply = await fetch(`${gateway.url}/v1/models/${encodeURIComponent('some/llama')}`)
  expect([reply.status, await reply.json()]).toMatchObject([
    200,
    { id: 'some/llama', owned_by: 'nodes' },
  ])
  const missing = await fetch(`${gateway.url}/v1/models/gpt-other`)
  expect([missing.status, await missing.json()]).toMatchObject([
    404,
    { error: { code: 'not_found', message: 'There is no such model' } },
  ])
})
