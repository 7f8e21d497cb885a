import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '../../../attestation/bytes.ts'
import { openSoftwareNsm } from '../../../enclave/nsm/software-nsm.ts'
import { type Identity, PROTOCOL_VERSION } from '../../../enclave/protocol/messages.ts'
import { findEnclaveFaults } from '../../../src/start/enclave-check.ts'

const domain = { chainId: 7, contract: `0x${'ab'.repeat(20)}` }
const provider = { name: 'acme', origin: 'https://api.example.com', path: '/v1', models: ['*'] }
let identity: Identity

beforeAll(async () => {
  const measuredRoot = join(import.meta.dirname, '../../..')
  const nsm = await openSoftwareNsm({ rootFile: null, measuredRoot, now: Date.now })
  const publicKey = randomBytes(65)
  const document = await nsm.attest({ publicKey, userData: randomBytes(32), nonce: null })
  nsm.close()
  identity = {
    boot_configuration: {
      protocol_version: PROTOCOL_VERSION,
      providers: [provider],
      ca_sha256: '00'.repeat(32),
      chain_id: domain.chainId,
      contract: domain.contract,
    },
    public_key: `0x${encodeHex(publicKey)}`,
    notary: `0x${'00'.repeat(20)}`,
    attestation: Buffer.from(document).toString('base64'),
    log: { size: 0, acknowledged: 0 },
  }
})

function faultsOf(more: object = {}, isProduction = false): Promise<readonly string[]> {
  const boot_configuration = { ...identity.boot_configuration, ...more }
  return findEnclaveFaults({ ...identity, boot_configuration }, { domain, isProduction, at: new Date() })
}

describe('findEnclaveFaults', () => {
  it('finds nothing wrong with an enclave of this chain and contract in development', async () => {
    expect(await faultsOf()).toEqual([])
  })

  it('names another protocol, chain and contract together', async () => {
    const faults = await faultsOf({ protocol_version: 99, chain_id: 8, contract: `0x${'cd'.repeat(20)}` })
    expect(faults).toHaveLength(3)
    expect(faults.join()).toMatch(/protocol version \d+, got 99.*chain 7, got 8.*contract 0xab.*got 0xcd/)
  })

  it('refuses a simulated security module in production, and says what it may be', async () => {
    expect(await faultsOf({}, true)).toEqual([
      expect.stringContaining('root_untrusted: is its security module simulated?'),
    ])
  })

  it('refuses providers in the clear in production, each by name', async () => {
    const providers = [provider, { ...provider, name: 'demo', origin: 'http://127.0.0.1:1' }]
    const faults = await faultsOf({ providers }, true)
    expect(faults[0]).toBe('enclave: expected production to reach provider demo over https')
  })

  it('refuses what is no document in production', async () => {
    const broken = { ...identity, attestation: 'AAAA' }
    const faults = await findEnclaveFaults(broken, { domain, isProduction: true, at: new Date() })
    expect(faults).toEqual([expect.stringContaining('expected an attestation document')])
  })
})
