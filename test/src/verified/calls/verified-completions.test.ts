import { expect, it } from 'vitest'
import type { EnclaveFault, Identity } from '#enclave/protocol/enclave-api.ts'
import { authenticate } from '#src/api/authenticate.ts'
import { OPENAI_FACE } from '#src/api/faces.ts'
import { openScope } from '#src/observability/call-scope.ts'
import { createLogger } from '#src/observability/logger.ts'
import {
  COMMITS_FAILING_MAX_MS,
  createVerifiedCompletions,
  type VerifiedCall,
} from '#src/verified/calls/verified-completions.ts'
import { NO_FIGURES } from '#src/verified/commits/commit-figures.ts'
import type { CommitterStatus } from '#src/verified/commits/committer.ts'

const KEY = 'operators-key-0123456789'

it.each([
  ['once commits have failed for too long', { failingForMs: COMMITS_FAILING_MAX_MS + 1 }],
  ['while the next nonce cannot be known', { failingForMs: 1, faultName: 'NonceUnknown' }],
])('a verified call is refused before the provider is asked, %s', async (_, status) => {
  const { complete, asked } = makeService(status)
  await expect(complete()).rejects.toMatchObject({ code: 'not_ready', status: 503 })
  expect(asked()).toBe(0)
})

it('a verified call is made while commits have failed for a moment only', async () => {
  const { complete, asked } = makeService({ failingForMs: COMMITS_FAILING_MAX_MS })
  await expect(complete()).rejects.toMatchObject({ code: 'provider_refused' })
  expect(asked()).toBe(1)
})

it("a verified call does not show the operator's key that a provider repeats", async () => {
  const { complete } = makeService({ failingForMs: 0 })
  const error = await complete().catch((reason: unknown) => reason)
  expect(JSON.stringify([error, String(error)])).not.toContain(KEY)
  expect(String(error)).toContain('Incorrect key [credential] for this model')
  expect(error).toMatchObject({ providerCode: 'bad_[credential]' })
})

it('authenticate answers 503 and keeps the cause when keys cannot be looked up', async () => {
  const cause = new Error('connect ECONNREFUSED')
  const middleware = authenticate({ authenticate: () => Promise.reject(cause) })
  const context = {
    req: { headers: { authorization: 'Bearer some-key' } },
    state: { face: OPENAI_FACE },
  }
  const run = middleware(context as Parameters<typeof middleware>[0], async () => undefined)
  await expect(run).rejects.toMatchObject({ code: 'not_ready', status: 503, cause })
})

it('the reason for which an enclave refused an answer is among the facts of the call', async () => {
  const { complete } = makeService({ failingForMs: 0, refused_reason: 'changed_text' })
  const { scope, result } = openScope(null, () => complete().catch(() => undefined))
  await result
  expect(scope.inference).toMatchObject({ provider: 'openai', refusedReason: 'changed_text' })
})

function makeService({
  failingForMs,
  faultName,
  ...more
}: {
  readonly refused_reason?: string
  readonly failingForMs: number
  readonly faultName?: string
}) {
  let asked = 0
  const fault: EnclaveFault = {
    status: 400,
    code: 'provider_refused',
    message: `Incorrect key ${KEY} for this model`,
    provider_code: `bad_${KEY}`,
    ...more,
  }
  const status: CommitterStatus = {
    ...NO_FIGURES,
    phase: failingForMs > 0 ? 'failing' : 'following',
    fault: faultName === undefined ? null : { name: faultName, message: '' },
    failingForMs,
    notary: null,
    size: 0,
    waiting: 0,
  }
  const { complete } = createVerifiedCompletions({
    enclaves: {
      complete: async ({ callFor }) => {
        callFor(IDENTITY)
        asked += 1
        return { kind: 'fault', fault }
      },
    },
    committer: {
      status: () => status,
      isStandby: () => false,
      waitFor: () => Promise.reject(new Error('nothing is sealed')),
    },
    credentials: () => new Map([['openai', KEY]]),
    outcomes: { recordServed: () => undefined, recordMissing: () => undefined },
    now: () => 0,
    log: createLogger({ level: 'silent', destination: process.stderr }),
  })
  return { complete: () => complete(CALL), asked: () => asked }
}

const IDENTITY: Identity = {
  boot_configuration: {
    protocol_version: 1,
    providers: [
      { name: 'openai', origin: 'https://api.openai.com', path: '/v1', models: ['gpt-*'] },
    ],
    ca_sha256: '00'.repeat(32),
    chain_id: 1,
    contract: `0x${'c0'.repeat(20)}`,
  },
  public_key: `0x${'04'.repeat(65)}`,
  notary: `0x${'aa'.repeat(20)}`,
  attestation: '',
  encryption_keys: [],
  log: { size: 0, acknowledged: 0 },
}

const CALL: VerifiedCall = {
  model: 'gpt-x',
  dialect: 'chat',
  headers: {},
  body: new Uint8Array(),
  callerCredential: null,
  context: { accountId: crypto.randomUUID(), requestId: 'req_1' },
  notary: null,
  isNotaryDemanded: false,
  abort: new AbortController(),
}
