import { createHash, randomBytes } from 'node:crypto'
import { digestBootConfiguration } from '../../attestation/evidence/boot-configuration.ts'
import { headAttestationUserData } from '../../attestation/evidence/head-statement.ts'
import type { LogDomain, TreeHead } from '../../attestation/tree-head.ts'
import { type Account, makeAccount } from '../../enclave/account.ts'
import { NotaryLog } from '../../enclave/log/notary-log.ts'
import { sealCompletion } from '../../enclave/log/seal.ts'
import { Space } from '../../enclave/log/space.ts'
import type {
  HeadAttestationReply,
  Identity,
  PullReply,
  PullRequest,
  SealedNotice,
} from '../../enclave/protocol/messages.ts'
import type { EnclaveClient } from '../../src/enclaves/enclave-client.ts'
import { EnclaveError } from '../../src/enclaves/enclave-errors.ts'
import { encodeCallContext } from '../../src/verified/call-context.ts'
import { buildDocument } from './nitro-builder/document-builder.ts'

export const TEST_DOMAIN: LogDomain = { chainId: 31337, contract: `0x${'ab'.repeat(20)}` }
export const TEST_ACCOUNT_ID = '11111111-1111-4111-8111-111111111111'

/** What one sealed completion says; everything has a default. */
export type Sealed = {
  readonly content?: string
  readonly accountId?: string
  readonly requestId?: string
  /** Instead of an encoded call context. */
  readonly context?: string
}

/**
 * The enclave's own log behind the committer's port, in this process: real keys, leaves and signed heads, without the
 * socket. Its script is what happens around a pull.
 */
export type ScriptedLog = {
  readonly enclave: Pick<EnclaveClient, 'identity' | 'forgetIdentity' | 'pull' | 'attestHead'>
  /** Called with each pull before the log sees it, and with each reply before the committer does; may throw or alter. */
  script: {
    beforePull: (request: PullRequest) => void | Promise<void>
    afterPull: (reply: PullReply) => PullReply | Promise<PullReply>
    /** Called with each head that is to be attested; what it gives is attested instead. */
    beforeAttest: (head: TreeHead) => TreeHead | Promise<TreeHead>
    /** Called with each head attestation. */
    afterAttest: (reply: HeadAttestationReply) => HeadAttestationReply
  }
  notary(): string
  /** Leaves that are sealed, and how many of them are acknowledged. */
  size(): number
  acknowledged(): number
  seal(completion?: Sealed): SealedNotice
  /** From now on the attestation document is another one. */
  renewDocument(): void
  /** The enclave dies and comes back with a new account: what was not acknowledged is gone. */
  restart(): Promise<void>
  /** While it is down, every call fails as the enclave's client does. */
  setDown(next: boolean): void
}

/** Gives a log of a new account. */
export async function createScriptedLog(domain: LogDomain = TEST_DOMAIN): Promise<ScriptedLog> {
  let notary = await openNotary(domain)
  let isDown = false

  function refuseWhileDown(): void {
    if (isDown) throw new EnclaveError('unavailable', 'the enclave is out of reach (ECONNREFUSED)')
  }

  const script: ScriptedLog['script'] = {
    beforePull: () => {},
    afterPull: (reply) => reply,
    beforeAttest: (head) => head,
    afterAttest: (reply) => reply,
  }
  return {
    script,
    enclave: {
      forgetIdentity: () => {},
      async identity() {
        refuseWhileDown()
        return identityOf(notary, domain)
      },
      async pull(request, signal) {
        await script.beforePull(request)
        refuseWhileDown()
        const asked = notary.account
        const reply = await pullFrom(notary, request, signal)
        refuseWhileDown()
        // A connection to an enclave that died while it waited breaks.
        if (notary.account !== asked)
          throw new EnclaveError('unavailable', 'the enclave is out of reach (ECONNRESET)')
        return await script.afterPull(reply)
      },
      async attestHead(blockHash) {
        refuseWhileDown()
        const asked = notary
        const head = await script.beforeAttest(asked.log.head())
        refuseWhileDown()
        return script.afterAttest(attestHead(asked, { head, blockHash, domain }))
      },
    },
    notary: () => notary.account.notary,
    size: () => notary.log.size,
    acknowledged: () => notary.log.acknowledged,
    seal: (completion = {}) => sealCompletion(notary, finish(notary.log.size, completion)),
    renewDocument() {
      notary = { ...notary, document: makeDocument() }
    },
    async restart() {
      const former = notary
      notary = await openNotary(domain)
      former.log.wake()
    },
    setDown(next) {
      isDown = next
      notary.log.wake()
    },
  }
}

type OpenNotary = {
  readonly account: Account
  readonly log: NotaryLog
  readonly document: ReturnType<typeof makeDocument>
}

async function openNotary(domain: LogDomain): Promise<OpenNotary> {
  const account = await makeAccount(async (length) => randomBytes(length))
  return {
    account,
    log: new NotaryLog({ account, domain, space: new Space(1 << 30) }),
    document: makeDocument(),
  }
}

/** Only its digest matters here; what a real one says, readers of records check. */
function makeDocument() {
  const bytes = randomBytes(4500)
  const digest = createHash('sha256').update(bytes).digest('hex')
  return { digest, base64: bytes.toString('base64'), leafNotAfterMs: Number.MAX_SAFE_INTEGER }
}

function identityOf({ account, log, document }: OpenNotary, domain: LogDomain): Identity {
  return {
    boot_configuration: {
      protocol_version: 1,
      providers: [],
      ca_sha256: '0'.repeat(64),
      chain_id: domain.chainId,
      contract: domain.contract,
    },
    public_key: `0x${Buffer.from(account.publicKey).toString('hex')}`,
    notary: account.notary,
    attestation: document.base64,
    log: { size: log.size, acknowledged: log.acknowledged },
  }
}

/** As enclave/server.ts attests it, by a module whose documents are of the builder's time and root. */
function attestHead(
  opened: OpenNotary,
  {
    head,
    blockHash,
    domain,
  }: { readonly head: TreeHead; readonly blockHash: string; readonly domain: LogDomain },
): HeadAttestationReply {
  const { notary, publicKey } = opened.account
  const configuration = digestBootConfiguration(identityOf(opened, domain).boot_configuration)
  const document = buildDocument({
    fields: {
      public_key: publicKey,
      user_data: headAttestationUserData({ configuration, notary, ...head }),
      nonce: Buffer.from(blockHash.slice(2), 'hex'),
    },
  })
  return {
    size: head.size,
    root: Buffer.from(head.root).toString('hex'),
    document: Buffer.from(document).toString('base64'),
  }
}

/** As enclave/server.ts serves it: acknowledge, wait, give; faults are EnclaveErrors as the client makes them. */
async function pullFrom({ log }: OpenNotary, request: PullRequest, signal: AbortSignal): Promise<PullReply> {
  try {
    log.acknowledge(request.from)
    await log.waitFor(request.from, request.wait_ms, signal)
    signal.throwIfAborted()
    // Through JSON, as on the wire.
    return JSON.parse(JSON.stringify(log.pull(request)))
  } catch (error) {
    if (signal.aborted || !(error instanceof Error) || !('fault' in error)) throw error
    throw new EnclaveError('refused', error.message, error.fault as EnclaveError['fault'])
  }
}

function finish(index: number, completion: Sealed) {
  const {
    content = `answer ${index}`,
    accountId = TEST_ACCOUNT_ID,
    requestId = `request-${index}`,
  } = completion
  return {
    canonicalRequest: `{"messages":[{"content":"question ${index}","role":"user"}],"model":"demo/test"}`,
    response: {
      id: `chatcmpl-${index}`,
      object: 'chat.completion',
      created: 1_790_000_000,
      model: 'demo/test',
      choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop', logprobs: null }],
    },
    streamHash: null,
    attempt: 1,
    forwardedHash: 'a'.repeat(64),
    receivedHash: 'b'.repeat(64),
    provider: { name: 'demo', origin: 'http://127.0.0.1:1', tls: null },
    requestedModel: 'demo/test',
    outcome: 'complete' as const,
    startedAtMs: 1_790_000_000_123,
    finishedAtMs: 1_790_000_001_999,
    context: completion.context ?? encodeCallContext({ accountId, requestId }),
  }
}
