import { type DerNode, decodeDer } from '#attestation/nitro/der.ts'
import { encodeDer, encodeLength } from '../nitro-builder/der-encoder.ts'
import type { Mutation } from './byte-mutations.ts'
import type { Random } from './random.ts'

/** Mutations of one element of a certificate's DER; the lengths around it are corrected. */
export const derMutations: Readonly<Record<string, Mutation>> = {
  'change a tag': onNode((node, random) =>
    encodeDer(
      random.pick([
        0x01,
        0x02,
        0x05,
        0x0c,
        0x17,
        0x18,
        0x30,
        0x31,
        0xa0,
        0xa3,
        0x1f,
        node.tag ^ 0x20,
      ]),
      node.content,
    ),
  ),
  'flip a bit of content': onNode((node, random) => {
    const index = random.below(Math.max(node.content.length, 1))
    return encodeDer(
      node.tag,
      Uint8Array.from(node.content, (byte, i) =>
        i === index ? byte ^ (1 << random.below(8)) : byte,
      ),
    )
  }),
  'widen a length': onNode(({ tag, content }) =>
    Buffer.concat([Buffer.of(tag, 0x83, 0, content.length >> 8, content.length & 0xff), content]),
  ),
  'make indefinite': onNode(({ tag, content }) =>
    Buffer.concat([Buffer.of(tag, 0x80), content, Buffer.of(0, 0)]),
  ),
  'change a length': onNode(({ tag, content }, random) =>
    Buffer.concat([
      Buffer.of(tag),
      encodeLength(Math.max(content.length + random.pick([-1, 1, 100]), 0)),
      content,
    ]),
  ),
  drop: onNode(() => new Uint8Array()),
  double: onNode(({ encoding }) => Buffer.concat([encoding, encoding])),
  empty: onNode(({ tag }) => encodeDer(tag)),
  pad: onNode(({ tag, content }) => encodeDer(tag, Buffer.of(0), content)),
  'add after': onNode(({ encoding }, random) =>
    Buffer.concat([encoding, random.bytes(1 + random.below(4))]),
  ),
  'fill with ones': onNode(({ tag, content }) =>
    encodeDer(tag, new Uint8Array(content.length).fill(0xff)),
  ),
  turn: onNode(({ tag, children, content }) =>
    encodeDer(
      tag,
      ...(children.length > 1
        ? children.toReversed().map(({ encoding }) => encoding)
        : [Uint8Array.from(content).reverse()]),
    ),
  ),
  'nest deeply': onNode(({ encoding }, random) => {
    let nested: Uint8Array = encoding
    for (let depth = random.below(40); depth > 0; depth--) nested = encodeDer(0x30, nested)
    return nested
  }),
}

type NodeMutation = (node: DerNode, random: Random) => Uint8Array

function onNode(mutate: NodeMutation): Mutation {
  return (bytes, random) => {
    const root = decodeDer(Uint8Array.from(bytes))
    const target = random.pick(flatten(root))
    return rebuild(root, (node) => (node === target ? mutate(node, random) : null))
  }
}

function flatten(node: DerNode): readonly DerNode[] {
  return [node, ...node.children.flatMap(flatten)]
}

function rebuild(node: DerNode, replace: (node: DerNode) => Uint8Array | null): Uint8Array {
  const replaced = replace(node)
  if (replaced) return replaced
  if (node.children.length === 0) return node.encoding
  return encodeDer(node.tag, ...node.children.map((child) => rebuild(child, replace)))
}
