import { Wallet } from 'ethers'
import { expect, it } from 'vitest'
import { decodeHex } from '#attestation/bytes.ts'
import { encryptionKeyDigest } from '#attestation/encryption-key.ts'
import type { ServedNotary } from '#src/enclaves/enclave-pool.ts'
import { verifyPeerNotaries } from '#src/enclaves/peer-notaries.ts'

const NOW_S = 1_760_000_000
const domain = { chainId: 31_337, contract: `0x${'c0'.repeat(20)}` }

function keyOf(
  signer: Wallet,
  more: { readonly not_before?: number; readonly not_after?: number } = {},
) {
  const stated = {
    public_key: 'ab'.repeat(32),
    not_before: NOW_S - 60,
    not_after: NOW_S + 3_600,
    ...more,
  }
  const digest = encryptionKeyDigest(domain, stated)
  return { ...stated, signature: signer.signingKey.sign(digest).serialized }
}

function notaryOf(wallet: Wallet, keys: readonly object[] = []): ServedNotary {
  return {
    notary: wallet.address.toLowerCase(),
    public_key: wallet.signingKey.publicKey,
    status: 'in_use',
    attestation: 'AAAA',
    boot_configuration: { chain_id: domain.chainId, contract: domain.contract },
    encryption_keys: keys,
  } as unknown as ServedNotary
}

const newWallet = () => new Wallet(Wallet.createRandom().privateKey)

async function verify(
  reported: readonly ServedNotary[],
  check = async (): Promise<readonly string[]> => [],
) {
  const faults: string[] = []
  const taken = await verifyPeerNotaries(reported, {
    check,
    nowMs: NOW_S * 1000,
    onFault: (_, fault) => void faults.push(fault),
  })
  return { taken, faults }
}

it('a notary of another gateway is taken when it passes the check of this one', async () => {
  const wallet = newWallet()
  const key = keyOf(wallet)
  const { taken, faults } = await verify([notaryOf(wallet, [key])])
  expect(taken).toMatchObject([{ encryption_keys: [key] }])
  expect(faults).toEqual([])
})

it('a notary of another gateway is left out when this one would not use its enclave', async () => {
  const check = async () => ['enclave: expected measurements of an accepted release']
  const { taken, faults } = await verify([notaryOf(newWallet())], check)
  expect(taken).toEqual([])
  expect(faults).toEqual(['enclave: expected measurements of an accepted release'])
})

it('a notary of another gateway is left out under an address that is not its own', async () => {
  const impostor = { ...notaryOf(newWallet()), notary: newWallet().address.toLowerCase() }
  expect((await verify([impostor])).taken).toEqual([])
  const broken = { ...notaryOf(newWallet()), public_key: '0x04' }
  expect((await verify([broken])).taken).toEqual([])
})

it('an encryption key that its notary did not sign, or that is not usable now, is left out', async () => {
  const wallet = newWallet()
  const good = keyOf(wallet)
  const bad = [
    keyOf(newWallet()),
    { ...good, public_key: 'cd'.repeat(32) },
    keyOf(wallet, { not_before: NOW_S - 7_200, not_after: NOW_S - 1 }),
    keyOf(wallet, { not_before: NOW_S + 600 }),
    { ...good, signature: '0x00' },
  ]
  const { taken } = await verify([notaryOf(wallet, [...bad, good])])
  expect(taken[0]?.encryption_keys).toEqual([good])
  expect(decodeHex(good.public_key)).toHaveLength(32)
})
