import { createHash, randomBytes } from 'node:crypto'
import { secp256k1 } from '@noble/curves/secp256k1.js'
import { addressOf } from '#attestation/account.ts'
import { decodeHex, encodeBase64, encodeHex } from '#attestation/bytes.ts'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { headAttestationUserData } from '#attestation/evidence/head-attestation.ts'
import type { LogDomain, TreeHead } from '#attestation/tree-head.ts'
import { Space } from '#enclave/log/memory-budget.ts'
import { NotaryLog } from '#enclave/log/notary-log.ts'
import { sealCompletion } from '#enclave/log/seal.ts'
import type { NotaryAccount } from '#enclave/notary-key.ts'
import type {
  BootConfiguration,
  HeadAttestationReply,
  Identity,
  PullReply,
  PullRequest,
  SealedNotice,
} from '#enclave/protocol/enclave-api.ts'
import type { EnclaveClient } from '#src/enclaves/enclave-client.ts'
import { EnclaveError } from '#src/enclaves/enclave-errors.ts'
import { encodeCallContext } from '#src/verified/call-context.ts'
import { buildDocument } from './nitro-builder/document-builder.ts'

export const TEST_DOMAIN: LogDomain = { chainId: 31337, contract: `0x${'ab'.repeat(20)}` }
export const TEST_ACCOUNT_ID = '11111111-1111-4111-8111-111111111111'

/** The content of one sealed completion; everything has a default. */
export type Sealed = {
  readonly content?: string
  readonly accountId?: string
  readonly requestId?: string
  readonly isEncrypted?: boolean
  /** Whether the gateway gets the completion with its notice. */
  readonly inNotice?: boolean
  /** In place of an encoded call context. */
  readonly context?: string
}

/**
 * The enclave's own log behind the committer's interface, in this process: real keys, leaves and
 * signed heads, without the socket. The script runs around a pull.
 */
export type ScriptedLog = {
  readonly enclave: Pick<EnclaveClient, 'identity' | 'forgetIdentity' | 'pull' | 'attestHead'>
  /**
   * Called with each pull before the log gets it, and with each reply before the committer gets it;
   * may throw or alter.
   */
  script: {
    beforePull: (request: PullRequest) => void | Promise<void>
    afterPull: (reply: PullReply) => PullReply | Promise<PullReply>
    /** Called with each head before it is attested; the head that it gives is attested instead. */
    beforeAttest: (head: TreeHead) => TreeHead | Promise<TreeHead>
    /** Called with each head attestation. */
    afterAttest: (reply: HeadAttestationReply) => HeadAttestationReply
  }
  notary(): string
  /** Number of sealed leaves, and how many of them are acknowledged. */
  size(): number
  acknowledged(): number
  seal(completion?: Sealed): SealedNotice
  /** Replaces the attestation document with a new one. */
  renewDocument(): void
  /** The enclave dies and comes back with a new account: what was not acknowledged is lost. */
  restart(): Promise<void>
  /** While the enclave is down, every call fails as the enclave's client does. */
  setDown(next: boolean): void
}

/** Gives a log with a new account. */
export async function createScriptedLog(domain: LogDomain = TEST_DOMAIN): Promise<ScriptedLog> {
  let notary = openNotary(domain)
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
        return notary.identity()
      },
      async pull(request, signal) {
        await script.beforePull(request)
        refuseWhileDown()
        const asked = notary.account
        const reply = await pullFrom(notary, request, signal)
        refuseWhileDown()
        // If the enclave dies while a call waits, the connection breaks.
        if (notary.account !== asked)
          throw new EnclaveError('unavailable', 'the enclave is out of reach (ECONNRESET)')
        return await script.afterPull(reply)
      },
      async attestHead(blockHash) {
        refuseWhileDown()
        const asked = notary
        const head = await script.beforeAttest(asked.log.head())
        refuseWhileDown()
        return script.afterAttest(await asked.attestHead(blockHash, head))
      },
    },
    notary: () => notary.account.notary,
    size: () => notary.log.size,
    acknowledged: () => notary.log.acknowledged,
    seal: (completion = {}) => notary.seal(finish(notary.log.size, completion)),
    renewDocument() {
      notary.document = documentOf(randomBytes(4500))
    },
    async restart() {
      const former = notary
      notary = openNotary(domain)
      former.log.wake()
    },
    setDown(next) {
      isDown = next
      notary.log.wake()
    },
  }
}

/** Makes an attestation document with these members. */
type Attest = (fields: {
  readonly publicKey: Uint8Array
  readonly userData: Uint8Array
  readonly nonce: Uint8Array
}) => Uint8Array | Promise<Uint8Array>

/**
 * The core of every scripted enclave: an account, its log and document, and the enclave's answers
 * about them.
 */
export class ScriptedNotary {
  readonly account = makeTestAccount()
  readonly log: NotaryLog
  document = documentOf(randomBytes(4500))
  private readonly boot: () => BootConfiguration
  private readonly attest: Attest

  constructor(boot: () => BootConfiguration, attest: Attest) {
    this.boot = boot
    this.attest = attest
    const { chain_id: chainId, contract } = boot()
    this.log = new NotaryLog({
      account: this.account,
      domain: { chainId, contract },
      space: new Space(2 ** 30),
    })
  }

  identity(): Identity {
    const { account, log, document } = this
    return {
      boot_configuration: this.boot(),
      public_key: `0x${encodeHex(account.publicKey)}`,
      notary: account.notary,
      attestation: document.base64,
      encryption_keys: [],
      log: { size: log.size, acknowledged: log.acknowledged },
    }
  }

  seal(completion: Parameters<typeof sealCompletion>[1]): SealedNotice {
    return sealCompletion(this, completion).notice
  }

  /** As enclave/server.ts does: acknowledge, wait, give. */
  async pull(request: PullRequest, signal: AbortSignal): Promise<PullReply> {
    this.log.acknowledge(request.from)
    await this.log.waitFor(request.from, request.wait_ms, signal)
    signal.throwIfAborted()
    return this.log.pull(request)
  }

  /** As enclave/server.ts does. */
  async attestHead(
    blockHash: string,
    head: TreeHead = this.log.head(),
  ): Promise<HeadAttestationReply> {
    const { notary, publicKey } = this.account
    const configuration = digestBootConfiguration(this.boot())
    const userData = headAttestationUserData({ configuration, notary, ...head })
    const document = await this.attest({ publicKey, userData, nonce: decodeHex(blockHash) })
    return { size: head.size, root: encodeHex(head.root), document: encodeBase64(document) }
  }
}

/** An attestation document as the enclave keeps it. */
export function documentOf(bytes: Uint8Array) {
  const digest = createHash('sha256').update(bytes).digest('hex')
  return { digest, base64: encodeBase64(bytes), leafNotAfterMs: Number.MAX_SAFE_INTEGER }
}

/** Like the enclave's account, but made at once. */
function makeTestAccount(): NotaryAccount {
  const { secretKey } = secp256k1.keygen()
  const publicKey = secp256k1.getPublicKey(secretKey, false)
  return {
    publicKey,
    notary: addressOf(publicKey),
    sign: (digest) => {
      const [recovery = 0, ...rest] = secp256k1.sign(digest, secretKey, {
        prehash: false,
        format: 'recovered',
      })
      return Uint8Array.from([...rest, 27 + recovery])
    },
  }
}

/**
 * Only the documents' digests matter here; tests of readers check the content of real ones. These
 * have the builder's time and root.
 */
function openNotary({ chainId, contract }: LogDomain): ScriptedNotary {
  const boot = {
    protocol_version: 1,
    providers: [],
    ca_sha256: '0'.repeat(64),
    chain_id: chainId,
    contract,
  }
  return new ScriptedNotary(
    () => boot,
    ({ publicKey, userData, nonce }) =>
      buildDocument({ fields: { public_key: publicKey, user_data: userData, nonce } }),
  )
}

/** Faults are EnclaveErrors, as in the client. */
async function pullFrom(
  notary: ScriptedNotary,
  request: PullRequest,
  signal: AbortSignal,
): Promise<PullReply> {
  try {
    // Through JSON, as on the wire.
    return JSON.parse(JSON.stringify(await notary.pull(request, signal)))
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
  const canonicalRequest = `{"messages":[{"content":"question ${index}","role":"user"}],"model":"demo/test"}`
  return {
    dialect: DIALECTS.chat,
    headers: {},
    canonicalRequest,
    requestDigest: createHash('sha256').update(canonicalRequest).digest(),
    response: {
      id: `chatcmpl-${index}`,
      object: 'chat.completion',
      created: 1_790_000_000,
      model: 'demo/test',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content },
          finish_reason: 'stop',
          logprobs: null,
        },
      ],
    },
    streamHash: null,
    attempt: 1,
    credential: { from: 'operator', demanded: false } as const,
    forwardedHash: 'a'.repeat(64),
    receivedHash: 'b'.repeat(64),
    provider: { name: 'demo', origin: 'http://127.0.0.1:1', tls: null },
    requestedModel: 'demo/test',
    outcome: 'complete' as const,
    startedAtMs: 1_790_000_000_123,
    finishedAtMs: 1_790_000_001_999,
    context: completion.context ?? encodeCallContext({ accountId, requestId }),
    isEncrypted: completion.isEncrypted === true,
    inNotice: completion.inNotice === true,
  }
}
