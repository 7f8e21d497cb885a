import { expect, it } from 'vitest'
import { createChainCache, type LinkedChain } from '#attestation/nitro/chain.ts'
import { importPoint, P384 } from '#attestation/nitro/ecdsa.ts'
import { publicKeyInfo } from '../../support/nitro-builder/certificate-builder.ts'
import { keyAt } from '../../support/nitro-builder/development-pki.ts'

const leafKey = await importPoint(publicKeyInfo(keyAt(4)).slice(-97), P384)
if (leafKey === null) throw new Error('expected a key')
const chain = (): LinkedChain => ({ certificates: [], leafKey })
const ders = (...parts: readonly string[]) => parts.map((part) => new Uint8Array(Buffer.from(part)))

it('a chain cache finds a chain by the bytes of all its certificates', () => {
  const cache = createChainCache(4)
  const kept = chain()
  cache.set(ders('root', 'leaf'), kept)
  expect(cache.get(ders('root', 'leaf'))).toBe(kept)
  expect(cache.get(ders('root', 'leaf '))).toBeUndefined()
  expect(cache.get(ders('root'))).toBeUndefined()
})

it('a chain cache tells the same bytes in other certificates apart', () => {
  const cache = createChainCache(4)
  cache.set(ders('ab', 'c'), chain())
  expect(cache.get(ders('a', 'bc'))).toBeUndefined()
  expect(cache.get(ders('abc'))).toBeUndefined()
})

it('a chain cache keeps as many as it may and drops the chain that was unused for longest', () => {
  const cache = createChainCache(2)
  cache.set(ders('1'), chain())
  cache.set(ders('2'), chain())
  cache.get(ders('1'))
  cache.set(ders('3'), chain())
  expect([ders('1'), ders('2'), ders('3')].map((key) => cache.get(key) !== undefined)).toEqual([
    true,
    false,
    true,
  ])
})

it('a chain cache of size zero keeps nothing', () => {
  const cache = createChainCache(0)
  cache.set(ders('1'), chain())
  expect(cache.get(ders('1'))).toBeUndefined()
})
