import { encodeRlp, getBytes, keccak256, toBeArray } from 'ethers'

/**
 * The Merkle-Patricia trie of a block's entries (0x hex), built by inserting one entry after the
 * other as the yellow paper's definitions read, with ethers' RLP and Keccak: to compare the real
 * thing with. `nodes` lead from the root to entry `index`.
 */
export function proveByReference(
  entries: readonly string[],
  index: number,
): { readonly root: string; readonly nodes: readonly string[] } {
  let trie: Node | null = null
  for (const [at, value] of entries.entries()) trie = insert(trie, keyOf(at), value)
  if (trie === null) throw new Error('expected an entry')
  const nodes: string[] = []
  let node: Node | undefined = trie
  let key = keyOf(index)
  while (node !== undefined) {
    nodes.push(encode(node))
    if (node.kind === 'leaf') break
    const taken: number = node.kind === 'branch' ? 1 : node.path.length
    node = node.kind === 'branch' ? node.children[Number.parseInt(key.slice(0, 1), 16)] : node.child
    key = key.slice(taken)
  }
  return { root: keccak256(encode(trie)), nodes }
}

type Node =
  | { readonly kind: 'leaf'; readonly path: string; readonly value: string }
  | { readonly kind: 'extension'; readonly path: string; readonly child: Node }
  | { readonly kind: 'branch'; readonly children: readonly (Node | undefined)[] }

/** Nibbles as hex digits. */
function keyOf(index: number): string {
  return encodeRlp(toBeArray(index)).slice(2)
}

function insert(node: Node | null | undefined, path: string, value: string): Node {
  if (!node) return { kind: 'leaf', path, value }
  if (node.kind === 'branch') {
    const digit = Number.parseInt(path.slice(0, 1), 16)
    return {
      kind: 'branch',
      children: node.children.with(digit, insert(node.children[digit], path.slice(1), value)),
    }
  }
  let shared = 0
  while (shared < node.path.length && node.path[shared] === path[shared]) shared++
  if (node.kind === 'extension' && shared === node.path.length)
    return { ...node, child: insert(node.child, path.slice(shared), value) }
  const split = insert(insertNode(node, shared), path.slice(shared), value)
  return shared === 0 ? split : { kind: 'extension', path: path.slice(0, shared), child: split }
}

/** A branch that holds what is left of `node` after its first `shared` nibbles. */
function insertNode(node: Exclude<Node, { kind: 'branch' }>, shared: number): Node {
  const children: (Node | undefined)[] = Array.from({ length: 16 })
  const rest = node.path.slice(shared + 1)
  const digit = Number.parseInt(node.path.slice(shared, shared + 1), 16)
  if (node.kind === 'leaf') children[digit] = { ...node, path: rest }
  else children[digit] = rest === '' ? node.child : { ...node, path: rest }
  return { kind: 'branch', children }
}

function encode(node: Node): string {
  if (node.kind === 'leaf') return encodeRlp([compact(node.path, 2), node.value])
  if (node.kind === 'extension')
    return encodeRlp([compact(node.path, 0), keccak256(encode(node.child))])
  return encodeRlp([
    ...node.children.map((child) => (child ? keccak256(encode(child)) : '0x')),
    '0x',
  ])
}

function compact(path: string, flag: number): Uint8Array {
  return getBytes(path.length % 2 === 1 ? `0x${flag + 1}${path}` : `0x${flag}0${path}`)
}
