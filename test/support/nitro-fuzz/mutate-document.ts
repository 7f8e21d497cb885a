import { decodeCose } from '#attestation/nitro/cose.ts'
import { encodeCbor } from '../nitro-builder/cbor-encoder.ts'
import { PROTECTED_HEADER, signDocument, standardChain } from '../nitro-builder/document-builder.ts'
import { byteMutations, type Mutation, replaceRange, splice } from './byte-mutations.ts'
import { cborMutations, type Item, readItem } from './cbor-mutations.ts'
import { derMutations } from './der-mutations.ts'
import type { Random } from './random.ts'

/**
 * A mutated document. `isSigned`: the leaf's key signed the mutated payload, so that later rules
 * are checked too.
 */
export type Mutant = {
  readonly bytes: Uint8Array
  readonly name: string
  readonly isSigned: boolean
}

/**
 * Gives a document made from `seed` by one to three mutations. `others` are spliced in. Only
 * documents of the builder's standard chain can be signed again; the root certificate of that chain
 * stays unchanged in them.
 */
export function mutateDocument(
  {
    seed,
    others,
    canSign,
  }: {
    readonly seed: Uint8Array
    readonly others: readonly Uint8Array[]
    readonly canSign: boolean
  },
  random: Random,
): Mutant {
  const strategy = random.below(10)
  if (strategy < 2) return repeated(byteMutations, seed, random)
  if (strategy === 2)
    return { bytes: splice(seed, random.pick(others), random), name: 'splice', isSigned: false }
  if (strategy < 5) return repeated(cborMutations, seed, random)
  const { payload, signature } = decodeCose(seed)
  if (random.below(50) === 0) return { bytes: twinOf(seed), name: 'twin', isSigned: false }
  const inner = strategy < 8 ? mutatePayload(payload, random) : mutateCertificate(payload, random)
  const isSigned = canSign && random.below(3) > 0
  const last = isSigned
    ? signDocument(standardChain, { header: PROTECTED_HEADER, payload: inner.bytes })
    : signature
  return { ...inner, bytes: encodeCbor([PROTECTED_HEADER, new Map(), inner.bytes, last]), isSigned }
}

/** The document with n - s for s, which verifies too. */
export function twinOf(document: Uint8Array): Uint8Array {
  const s = BigInt(`0x${Buffer.from(document.subarray(-48)).toString('hex')}`)
  const twin = Buffer.from((ORDER - s).toString(16).padStart(96, '0'), 'hex')
  return Buffer.concat([document.subarray(0, -48), twin])
}

/** Order of P-384 (SP 800-186 section 3.2.1.4). */
const ORDER =
  0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n

type Unsigned = { readonly bytes: Uint8Array; readonly name: string }

/** Of several mutations, only the first may use CBOR: after it, the bytes may not be CBOR. */
function repeated(
  mutations: Readonly<Record<string, Mutation>>,
  seed: Uint8Array,
  random: Random,
): Mutant {
  const [name, mutate] = random.pick(Object.entries(mutations))
  let bytes = mutate(seed, random)
  for (let count = random.below(6) - 3; count > 0; count--) {
    if (bytes.length > 0) bytes = random.pick(Object.values(byteMutations))(bytes, random)
  }
  return { bytes, name, isSigned: false }
}

function mutatePayload(payload: Uint8Array, random: Random): Unsigned {
  const mutations = random.below(4) === 0 ? byteMutations : cborMutations
  const [name, mutate] = random.pick(Object.entries(mutations))
  return { bytes: mutate(payload, random), name: `payload: ${name}` }
}

function mutateCertificate(payload: Uint8Array, random: Random): Unsigned {
  const item = random.pick(certificatesIn(payload))
  const [name, mutate] = random.pick(
    Object.entries(random.below(5) === 0 ? byteMutations : derMutations),
  )
  const certificate = mutate(payload.slice(item.headEnd, item.end), random)
  const bytes = replaceRange(payload, {
    start: item.start,
    end: item.end,
    by: encodeCbor(certificate),
  })
  return { bytes, name: `certificate: ${name}` }
}

/**
 * Byte strings of the payload that hold certificates, except the root: the least change of the root
 * ends the verification.
 */
function certificatesIn(payload: Uint8Array): readonly Item[] {
  const { children } = readItem(payload)
  const itemOf = (name: string) => {
    const key = children.findIndex(
      ({ headEnd, end }, index) =>
        index % 2 === 0 && Buffer.from(payload.subarray(headEnd, end)).toString() === name,
    )
    return children[key + 1]
  }
  const leaf = itemOf('certificate')
  return [...(leaf ? [leaf] : []), ...(itemOf('cabundle')?.children.slice(1) ?? [])]
}
