import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Command } from 'commander'
import { sql } from 'kysely'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type AdminLog, createAdminLog } from '#src/accounts/admin-log-store.ts'
import { createProgram } from '#src/cli/program.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { CONTROL_ROUTES, ROUTES } from '../../support/api-routes.ts'
import { CHAT_REQUEST, getPath, postChat } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { secretOf } from '../../support/key-secret.ts'
import { runCommand, runCommandWith } from '../../support/run-command.ts'
import { answerWhole, SCRIPTED_PROVIDERS } from '../../support/scripted-enclave.ts'
import { createTestDatabase } from '../../support/test-database.ts'

/*
 * Every command, route and operation of the product stands in one of the tables below: those that
 * administer with the acts that they leave in the trail. A new one without an act fails here.
 */

const EVERYTHING = { before: null, kind: null, since: null, until: null, limit: 1_000 }
const CREDENTIAL = `provider-${randomBytes(16).toString('hex')}`
const PASSWORD_IN_TEXT = `afd_${'a'.repeat(16)}_${randomBytes(32).toString('base64url')}`

let gateway: TestGateway
let database: Database
let log: AdminLog
let folder = ''
let variables: Readonly<Record<string, string>>
let enclaveUrl = ''
/** What no row of the trail may hold. */
const secrets: string[] = [CREDENTIAL, secretOf(PASSWORD_IN_TEXT)]
/** A key of the scopes `admin` and `inference`, and its id. */
let admin = { text: '', id: '' }

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-trail-'))
  const controlSocket = join(folder, 'control.sock')
  const url = await createTestDatabase()
  gateway = await startGateway({
    postgres: { createDatabase: async () => url },
    credentials: new Map(SCRIPTED_PROVIDERS.map(({ name }) => [name, CREDENTIAL])),
    settings: { controlSocket },
  })
  gateway.enclave.setScript(answerWhole({}))
  enclaveUrl = `unix:${gateway.enclave.socketPath}`
  database = await openDatabase({ url })
  log = createAdminLog(database)
  const keyFile = join(folder, 'content.key')
  const contentKey = (await runCommand('content', 'key')).stdout
  secrets.push(contentKey.trim(), new URL(url).password)
  await writeFile(keyFile, contentKey, { mode: 0o600 })
  variables = { DATABASE_URL: url, CONTROL_SOCKET: controlSocket, CONTENT_KEY_FILE: keyFile }
  const scopes = ['admin', 'inference'] as const
  const made = await gateway.keys.create({ accountName: 'operators', name: 'k', scopes })
  admin = { text: made.text, id: made.key.id }
  secrets.push(secretOf(made.text))
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await database.close()
  await gateway.stop()
  await rm(folder, { recursive: true })
}, GATEWAY_HOOK_TIMEOUT_MS)

/** Runs something, and gives what it left in the trail, oldest first. */
async function actsOf(run: () => Promise<unknown>) {
  const before = await log.list({ ...EVERYTHING, limit: 1 })
  await run()
  const since = before[0]?.position ?? 0
  return (await log.list(EVERYTHING)).filter(({ position }) => position > since).toReversed()
}

/** A key of an account, made without a note. */
async function makeKey(accountName: string) {
  const { text, key } = await gateway.keys.create({ accountName, name: 'k' })
  secrets.push(secretOf(text))
  return { text, id: key.id, account: accountName }
}

/** Words of a command, and the acts that it leaves. */
type Administers = {
  readonly words: () => Promise<readonly string[]>
  readonly kinds: readonly string[]
}

const account = () => `account ${crypto.randomUUID()}`
const opened = async () => (await makeKey(account())).account
const of = (words: () => Promise<readonly string[]>, ...kinds: string[]): Administers => ({
  words,
  kinds,
})

/** Commands that administer a service. */
const ADMINISTER: Readonly<Record<string, Administers>> = {
  'keys create': of(
    async () => ['--account', account(), '--name', PASSWORD_IN_TEXT],
    'account.open',
    'key.create',
  ),
  // The whole key, where its id belongs.
  'keys revoke': of(async () => [PASSWORD_IN_TEXT], 'key.revoke'),
  'keys set-budget': of(
    async () => [(await makeKey(account())).id, 'tokens', 'day', '5'],
    'budget.set',
  ),
  'accounts create': of(
    async () => [account(), '--tier', 'gold'],
    'account.open',
    'account.set_tier',
  ),
  'accounts disable': of(async () => [await opened()], 'account.disable'),
  'accounts enable': of(async () => [await opened()], 'account.enable'),
  'accounts delete': of(async () => [await opened()], 'account.delete'),
  'accounts set-budget': of(async () => [await opened(), 'money', 'month', '12.50'], 'budget.set'),
  'accounts set-tier': of(async () => [await opened(), 'gold'], 'account.set_tier'),
  'accounts set-retention': of(async () => [await opened(), '30'], 'retention.set'),
  erase: of(
    async () => ['--account', await opened(), '--reason', `found ${PASSWORD_IN_TEXT}`],
    'erasure.account',
  ),
  'content encrypt': of(async () => [], 'content.use_key', 'content.encrypt', 'content.retire'),
  'enclaves drain': of(async () => ['--no-wait', enclaveUrl], 'enclave.drain'),
  'enclaves add': of(async () => [enclaveUrl], 'enclave.add'),
  'enclaves remove': of(async () => ['unix:/nowhere'], 'enclave.remove'),
  migrate: of(async () => [], 'database.migrate'),
}

/** Commands that do not change a service, and why. */
const OTHERS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    [
      'keys list',
      'accounts list',
      'budgets',
      'admin-log',
      'content keys',
      'enclaves list',
      'relayer',
      'provider',
      'verify',
      'audit',
      'evidence',
      'attestation',
      'node list',
      'node status',
      'node stats',
      'usage',
    ].map((name) => [name, 'reads']),
  ),
  ...Object.fromEntries(
    [
      'redact',
      'verifier',
      'measure',
      'content key',
      'completions',
      'help',
      'release key',
      'release sign',
      'release show',
      'release list add',
      'release list end',
      'release list revoke',
      'release list sign',
      'release list renew',
    ].map((name) => [name, 'works on files alone; a gateway notes the list that it reads']),
  ),
  ...Object.fromEntries(
    [
      'node run',
      'node create',
      'node benchmark',
      'proxy',
      'complete',
      'policy make',
      'policy show',
    ].map((name) => [name, 'is a customer’s']),
  ),
  'contract deploy': 'works on the chain alone, which keeps it',
  'relayer key': 'makes a file',
  'relayer withdraw': 'works on the chain alone, which keeps it',
}

function leavesOf(command: Command, names: readonly string[] = []): readonly string[] {
  const own = '_actionHandler' in command && command._actionHandler !== null
  const others = command.commands.flatMap((one) => leavesOf(one, [...names, one.name()]))
  return own ? [names.join(' '), ...others] : others
}

it('every command stands in a table of this file as what it is', () => {
  expect(leavesOf(createProgram()).toSorted()).toEqual(
    [...Object.keys(ADMINISTER), ...Object.keys(OTHERS)].toSorted(),
  )
})

it.each(Object.entries(ADMINISTER))(
  'the command %s is noted in the trail',
  async (name, { words, kinds }) => {
    const given = await words()
    const run = () => runCommandWith(variables, ...name.split(' '), ...given)
    if (name === 'migrate') {
      const url = await createTestDatabase({ empty: true })
      await runCommandWith({ DATABASE_URL: url }, name)
      const other = await openDatabase({ url })
      expect(await createAdminLog(other).list(EVERYTHING)).toMatchObject([
        { kind: 'database.migrate', who: operator(), from: 'command line' },
      ])
      await other.close()
      return
    }
    const acts = await actsOf(run)
    expect(acts.map(({ kind }) => kind)).toEqual(kinds)
    const from = name.startsWith('enclaves') ? 'control socket' : 'command line'
    for (const act of acts) {
      expect(act).toMatchObject({ who: operator(), account_id: null, from })
      expect(Math.abs(act.at - Date.now() / 1000)).toBeLessThan(60)
    }
  },
)

function operator(): string {
  return `operator (uid ${process.getuid?.()})`
}

/** One call of a route, and the acts that it leaves. */
type Called = {
  readonly call: () => Promise<{ readonly path?: string; readonly body?: object }>
  readonly kinds: readonly string[]
}

const call = (make: Called['call'], ...kinds: string[]): Called => ({ call: make, kinds })
const query = (values: Readonly<Record<string, string>>) => `?${new URLSearchParams(values)}`

/** Routes that administer: what a key of any scope, or of the scope `admin`, changes. */
const ROUTES_THAT_ADMINISTER: Readonly<Record<string, Called>> = {
  'POST /v1/dashboard/keys': call(async () => ({ body: { name: 'k' } }), 'key.create'),
  'DELETE /v1/dashboard/keys/:id': call(
    async () => ({ path: `/v1/dashboard/keys/${(await makeKey(account())).id}` }),
    'key.revoke',
  ),
  'POST /v1/admin/accounts': call(async () => ({ body: { name: account() } }), 'account.open'),
  'PUT /v1/admin/accounts': call(
    async () => ({ body: { name: await opened(), tier: null } }),
    'account.set_tier',
  ),
  'PUT /v1/admin/accounts/state': call(
    async () => ({ body: { name: await opened(), state: 'disabled' } }),
    'account.disable',
  ),
  'DELETE /v1/admin/accounts': call(
    async () => ({ path: `/v1/admin/accounts${query({ name: await opened() })}` }),
    'account.delete',
  ),
  'PUT /v1/admin/budgets': call(
    async () => ({ body: { account: await opened(), what: 'tokens', per: 'day', bound: 1 } }),
    'budget.set',
  ),
  'DELETE /v1/admin/budgets': call(
    async () => ({
      path: `/v1/admin/budgets${query({ account: await opened(), what: 'tokens', per: 'day' })}`,
    }),
    'budget.set',
  ),
  'PUT /v1/admin/enclaves': call(async () => ({ body: { url: enclaveUrl } }), 'enclave.drain'),
  'POST /v1/admin/enclaves': call(async () => ({ body: { url: enclaveUrl } }), 'enclave.add'),
  'DELETE /v1/admin/enclaves': call(
    async () => ({ path: `/v1/admin/enclaves${query({ url: 'unix:/nowhere' })}` }),
    'enclave.remove',
  ),
  // A customer's own act, recorded because it destroys content.
  'DELETE /v1/verified/chat/completions/:hash': call(
    async () => ({ path: `/v1/verified/chat/completions/${await storedHash()}` }),
    'erasure.record',
  ),
}

async function storedHash(): Promise<string> {
  const key = admin.text
  // The enclave that was drained and added is just being checked.
  await expect
    .poll(async () => (await postChat({ ...gateway, key }, CHAT_REQUEST)).status)
    .toBe(200)
  const reply = await getPath({ ...gateway, key }, '/v1/verified/chat/completions')
  const { completions } = (await reply.json()) as {
    readonly completions: readonly { readonly hash: string }[]
  }
  return completions[0]?.hash ?? ''
}

it('every route stands in a table of this file as what it is', () => {
  // What is for models and nodes is a customer's.
  const administer = ROUTES.filter(
    ({ method, scope }) => method !== 'GET' && ['admin', 'keys', 'any'].includes(scope),
  ).map(({ method, path }) => `${method} ${path}`)
  const erasure = 'DELETE /v1/verified/chat/completions/:hash'
  expect(Object.keys(ROUTES_THAT_ADMINISTER).toSorted()).toEqual(
    [...administer, erasure].toSorted(),
  )
  const scopes = new Set(ROUTES.map(({ scope }) => scope))
  expect(scopes).toEqual(new Set(['admin', 'any', 'inference', 'keys', 'nodes', 'public']))
})

it.each(Object.entries(ROUTES_THAT_ADMINISTER))(
  'the route %s is noted in the trail',
  async (name, { call, kinds }) => {
    const [method = '', pattern = ''] = name.split(' ')
    const { path = pattern, body } = await call()
    const acts = await actsOf(async () => {
      const reply = await fetch(gateway.url + path, {
        method,
        headers: { authorization: `Bearer ${admin.text}`, 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
      const made = (await reply.json()) as { readonly key?: string }
      if (made.key !== undefined) secrets.push(secretOf(made.key))
    })
    expect(acts.map(({ kind }) => kind)).toEqual(kinds)
    for (const act of acts) expect(act).toMatchObject({ who: `key ${admin.id}`, from: '127.0.0.1' })
  },
)

const acts = CONTROL_ROUTES.filter(({ scope }) => scope === 'operator')

it.each(acts)('the public port does not serve $method $path', async ({ method, path }) => {
  const reply = await fetch(gateway.url + path, {
    method,
    headers: { authorization: `Bearer ${admin.text}` },
  })
  expect([404, 405]).toContain(reply.status)
  const document = await (await fetch(`${gateway.url}/openapi.json`)).json()
  expect(document).not.toHaveProperty(['paths', path, method.toLowerCase()])
})

it('the trail has an act of every operation that changes something', async () => {
  const kinds = new Set((await log.list(EVERYTHING)).map(({ kind }) => kind))
  const changing = CONTROL_ROUTES.filter(({ method }) => method !== 'GET')
    .map(({ method, path }) => `${method} ${path}`)
    .filter((name) => !NOT_RECORDED.includes(name))
  expect(changing.toSorted()).toEqual(Object.keys(KINDS).toSorted())
  for (const kind of Object.values(KINDS)) expect(kinds).toContain(kind)
})

it('the trail has no secret in its whole text', async () => {
  expect(secrets.length).toBeGreaterThan(10)
  const { rows } = await sql<{ row: string }>`
      select a::text || encode(hash, 'hex') as row from admin_acts a`.execute(database.queries)
  const dump = rows.map(({ row }) => row).join('\n')
  expect(rows.length).toBeGreaterThan(25)
  for (const secret of secrets)
    if (secret !== '') expect(dump.includes(secret) ? secret : null).toBeNull()
  await expect(log.check(null)).resolves.toMatchObject({ kind: 'whole', position: rows.length })
})

/** Routes of the control socket that change nothing, or go on with what was recorded before. */
const NOT_RECORDED = [
  'POST /v1/admin/log/check',
  'POST /v1/admin/usage/report',
  'DELETE /v1/admin/erasures',
]

/** An act of each of the others. */
const KINDS = {
  'POST /v1/admin/keys': 'key.create',
  'DELETE /v1/admin/keys': 'key.revoke',
  'POST /v1/admin/accounts': 'account.open',
  'POST /v1/admin/accounts/new': 'account.open',
  'PUT /v1/admin/accounts': 'account.set_tier',
  'PUT /v1/admin/accounts/state': 'account.disable',
  'DELETE /v1/admin/accounts': 'account.delete',
  'PUT /v1/admin/budgets': 'budget.set',
  'DELETE /v1/admin/budgets': 'budget.set',
  'POST /v1/admin/enclaves': 'enclave.add',
  'PUT /v1/admin/enclaves': 'enclave.drain',
  'DELETE /v1/admin/enclaves': 'enclave.remove',
  'POST /v1/admin/erasures': 'erasure.record',
  'PUT /v1/admin/erasures': 'erasure.account',
  'PUT /v1/admin/retention': 'retention.set',
  'POST /v1/admin/content-keys': 'content.encrypt',
  'PUT /v1/admin/content-keys': 'content.retire',
}
