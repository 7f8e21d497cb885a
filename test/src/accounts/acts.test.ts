import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { connectToGateway } from '#src/cli/operations.ts'
import { CHAT_REQUEST, getPath, outcomeOf, postChat } from '../../support/calls.ts'
import {
  GATEWAY_HOOK_TIMEOUT_MS,
  startGateway,
  type TestGateway,
  useGateway,
} from '../../support/gateway.ts'
import { answerWhole } from '../../support/scripted-enclave.ts'

const gateway = await useGateway()
gateway.enclave.setScript(answerWhole({}))
const order = { accountName: 'operators', name: 'k', scopes: ['admin'] } as const
/** The same, called with a key of the scope `admin`. */
const admin = { ...gateway, key: (await gateway.keys.create(order)).text }

/** Members of the answers here; each has some of them. */
type Reply = {
  readonly accounts: readonly unknown[]
  readonly enclaves: readonly { readonly url: string; readonly state: string }[]
  readonly anchors: unknown
}
const read = async (path: string) =>
  (await (await getPath(admin, `/v1/admin/${path}`)).json()) as Reply
const send = (method: string, path: string, body?: unknown, of = admin) =>
  sendTo(of, method, path, body)
const sendTo = (of: TestGateway, method: string, path: string, body?: unknown) =>
  fetch(`${of.url}/v1/admin/${path}`, {
    method,
    headers: { authorization: `Bearer ${of.key}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })

it("the operator's routes list enclaves, and drain and add them", async () => {
  const { enclaves } = await read('enclaves')
  expect(enclaves).toMatchObject([{ state: 'usable', notary: gateway.enclave.notary }])
  const url = enclaves[0]?.url ?? ''
  const remove = (of: string) => send('DELETE', `enclaves?url=${encodeURIComponent(of)}`)
  expect(await outcomeOf(await remove(url))).toEqual([409, 'enclave_in_use'])
  expect(await outcomeOf(await remove('unix:/nowhere'))).toEqual([404, 'not_found'])
  expect(await outcomeOf(await remove('http://x'))).toEqual([422, ['query.url']])
  expect(await outcomeOf(await send('PUT', 'enclaves', { url: 'x' }))).toEqual([422, ['body.url']])
  expect((await send('PUT', 'enclaves', { url })).status).toBe(200)
  const state = async () => (await read('enclaves')).enclaves[0]?.state
  await expect.poll(state).not.toBe('usable')
  expect((await send('POST', 'enclaves', { url })).status).toBe(200)
  await expect.poll(state, { timeout: 20_000 }).toBe('usable')
})

it("the operator's routes tell which anchors and commits wait", async () => {
  await expect.poll(async () => (await postChat(gateway, CHAT_REQUEST)).status).toBe(200)
  const { anchors } = await read('anchors')
  expect(anchors).toMatchObject([{ state: 'pending', notary: gateway.enclave.notary, size: 1 }])
  expect(await read('status')).toMatchObject({
    commits: { state: 'following', fault: null },
    anchors: { state: 'idle', chain: 'ok' },
  })
  expect(await outcomeOf(await getPath(admin, '/v1/admin/anchors?limit=0'))).toEqual([
    422,
    ['query.limit'],
  ])
})

it(
  'enclaves are changed at the control socket alone, because the port reaches one process',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'affidavit-acts-'))
    const controlSocket = join(folder, 'control.sock')
    const one = await startGateway({ settings: { processes: 2, controlSocket } })
    const order = { accountName: 'operators', name: 'k', scopes: ['admin'] } as const
    const asAdmin = { ...one, key: (await one.keys.create(order)).text }
    const url = `unix:${one.enclave.socketPath}`
    const calls = [
      ['POST', 'enclaves', { url }],
      ['PUT', 'enclaves', { url }],
      ['DELETE', `enclaves?url=${encodeURIComponent(url)}`],
    ] as const
    for (const [method, path, body] of calls) {
      const refused = await sendTo(asAdmin, method, path, body)
      expect(await refused.clone().text()).toContain('affidavit enclaves')
      expect(await outcomeOf(refused)).toEqual([409, 'one_of_many_processes'])
    }
    const listed = await (await getPath(asAdmin, '/v1/admin/enclaves')).json()
    expect(listed).toMatchObject({ enclaves: [{ url, state: 'usable' }] })
    const operator = await connectToGateway('/nowhere', controlSocket)
    expect(await operator?.enclaves.drain({ url })).toEqual({ outcome: 'done' })
    await operator?.close()
    await one.stop()
    await rm(folder, { recursive: true })
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)
