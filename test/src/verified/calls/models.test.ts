import Anthropic from '@anthropic-ai/sdk'
import { beforeAll, beforeEach, expect, it } from 'vitest'
import { CHAT_REQUEST, outcomeOf, postChat } from '../../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, useGateway } from '../../../support/gateway.ts'
import { answerFault, answerWhole } from '../../../support/scripted-enclave.ts'
import { until } from '../../../support/until.ts'

const PATH = '/v1/verified/models'
const KEY = 'operators-key-0123456789'

const gateway = await useGateway({
  credentials: new Map([['openai', KEY]]),
  settings: {
    providerModels: ['gpt-named', 'claude-named', 'nobodys/model', 'some/model/of-demo'],
  },
})
beforeAll(async () => {
  gateway.enclave.setProviders([
    {
      name: 'demo',
      origin: 'http://127.0.0.1:9',
      path: '/v1',
      models: ['demo/echo', 'some/*'],
      endpoints: { messages: { path: '/v1/messages' } },
    },
    { name: 'openai', origin: 'https://openai.test', path: '/v1', models: ['gpt-*', 'gpt-exact'] },
    {
      name: 'anthropic',
      origin: 'https://anthropic.test',
      path: '/v1',
      models: ['claude-*', 'claude-exact'],
    },
  ])
  await until('the providers are known', async () => (await ids()).includes('gpt-exact'))
}, GATEWAY_HOOK_TIMEOUT_MS)
beforeEach(() => gateway.enclave.setScript(answerWhole({})))

async function ids(headers: Readonly<Record<string, string>> = {}): Promise<readonly string[]> {
  const reply = await fetch(gateway.url + PATH, { headers })
  expect(reply.status).toBe(200)
  return ((await reply.json()) as { data: { id: string }[] }).data.map(({ id }) => id).toSorted()
}

const LISTED = ['demo/echo', 'gpt-exact', 'gpt-named', 'some/model/of-demo']
const ask = (model: string, headers = {}) =>
  postChat(gateway, { ...CHAT_REQUEST, model }, { headers })

it('the list of verified models has what the credentials allow, and nothing that ends in 403 or 404', async () => {
  expect(await ids()).toEqual(LISTED)
  for (const model of LISTED) expect((await ask(model)).status).toBe(200)
  expect(await outcomeOf(await ask('claude-exact'))).toEqual([403, 'provider_credential_missing'])
  expect(await outcomeOf(await ask('nobodys/model'))).toEqual([404, 'unsupported_model'])
})

it("the list of models of Messages has Anthropic's form, and no model of chat alone", async () => {
  const baseURL = `${gateway.url}/v1/verified/anthropic`
  const page = await new Anthropic({ baseURL, apiKey: gateway.key }).models.list()
  const served = ['demo/echo', 'some/model/of-demo']
  expect(page.data.map(({ id }) => id).toSorted()).toEqual(served)
  const reply = await fetch(`${baseURL}/v1/models/some/model/of-demo?beta=true`)
  expect(await reply.json()).toMatchObject({ type: 'model', id: 'some/model/of-demo' })
})

it('the list of verified models lists those of every provider for a caller who brings a credential', async () => {
  const headers = { 'Fine-Tune-Authorization': 'Bearer mine' }
  expect(await ids(headers)).toEqual(['claude-exact', 'claude-named', ...LISTED].toSorted())
  expect((await ask('claude-exact', headers)).status).toBe(200)
  const bad = await fetch(gateway.url + PATH, {
    headers: { 'Fine-Tune-Authorization': 'two words' },
  })
  expect(await outcomeOf(bad)).toEqual([422, ['header.fine-tune-authorization']])
})

it('the list of verified models has one of a pattern once a completion of it was made by this credential', async () => {
  await ask('gpt-private', { 'Fine-Tune-Authorization': 'Bearer mine' })
  expect(await ids()).not.toContain('gpt-private')
  await (await ask('gpt-new')).json()
  expect(await ids()).toContain('gpt-new')
})

it('the order of the verified models does not change by calls', async () => {
  const list = async () => {
    const reply = await fetch(gateway.url + PATH)
    return ((await reply.json()) as { data: { id: string }[] }).data.map(({ id }) => id)
  }
  for (const model of ['gpt-b', 'gpt-a']) await (await ask(model)).json()
  const before = await list()
  expect(before.indexOf('gpt-a')).toBeLessThan(before.indexOf('gpt-b'))
  for (const model of ['gpt-b', 'gpt-a', 'demo/echo']) {
    await (await ask(model)).json()
    expect(await list()).toEqual(before)
  }
})

it('the list of verified models lists no model that the provider said it does not have, until it does', async () => {
  const fault = { status: 404, code: 'provider_refused', message: 'no such model' } as const
  gateway.enclave.setScript(answerFault(fault))
  expect(await outcomeOf(await ask('gpt-named'))).toEqual([404, 'provider_refused'])
  expect(await ids()).not.toContain('gpt-named')
  expect(await ids({ 'Fine-Tune-Authorization': 'mine' })).toContain('gpt-named')
  gateway.enclave.setScript(answerWhole({}))
  await (await ask('gpt-named')).json()
  expect(await ids()).toContain('gpt-named')
})

it('the list of verified models gives one by its id, with slashes in it as they are, or in percents', async () => {
  for (const id of ['some/model/of-demo', encodeURIComponent('some/model/of-demo')]) {
    const reply = await fetch(`${gateway.url}${PATH}/${id}`)
    expect([reply.status, await reply.json()]).toMatchObject([
      200,
      { id: 'some/model/of-demo', owned_by: 'demo' },
    ])
    expect((await fetch(`${gateway.url}/v1/models/${id}`)).status).toBe(200)
  }
  expect(await outcomeOf(await fetch(`${gateway.url}${PATH}/claude-exact`))).toEqual([
    404,
    'not_found',
  ])
})
