import { createHash, randomBytes } from 'node:crypto'
import { verifyMessage } from 'ethers'
import { describe, expect, it } from 'vitest'
import { addressOf, completionDigest } from '#attestation/account.ts'
import { encodeHex } from '#attestation/bytes.ts'
import { verifyCompletionSignature } from '#attestation/completion-signature.ts'
import { makeAccount } from '#enclave/notary-key.ts'

const random = async (length: number) => new Uint8Array(randomBytes(length))

describe('makeAccount', () => {
  it('makeAccount makes a key from 32 bytes of the source', async () => {
    const asked: number[] = []
    const account = await makeAccount(async (length) => {
      asked.push(length)
      return new Uint8Array(length).fill(1)
    })
    expect(asked).toEqual([32])
    // The well-known account of the private key 0x0101…01.
    expect(account.notary).toBe('0x1a642f0e3c3af545e7acbd38b07251b3990914f1')
    expect(account.notary).toBe(addressOf(account.publicKey))
    expect(account.publicKey).toHaveLength(65)
  })

  it('makeAccount draws again when the bytes are no private key, and gives up when they never are', async () => {
    const draws = [new Uint8Array(32), new Uint8Array(32).fill(255), new Uint8Array(32).fill(1)]
    const account = await makeAccount(async () => draws.shift() ?? new Uint8Array(32))
    expect(account.notary).toBe('0x1a642f0e3c3af545e7acbd38b07251b3990914f1')
    await expect(makeAccount(async () => new Uint8Array(32))).rejects.toThrow('randomness')
  })

  it('an account of makeAccount signs so that our check and another library find the account', async () => {
    const account = await makeAccount(random)
    for (let round = 0; round < 3; round++) {
      const hash = new Uint8Array(createHash('sha256').update(String(round)).digest())
      const signature = account.sign(completionDigest(hash))
      const { publicKey } = account
      expect(verifyCompletionSignature({ hash, signature, publicKey })).toEqual({
        address: account.notary,
        lowS: true,
      })
      expect(verifyMessage(hash, `0x${encodeHex(signature)}`).toLowerCase()).toBe(account.notary)
    }
  })
})
