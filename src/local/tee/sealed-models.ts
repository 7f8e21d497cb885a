import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { TEE_MODELS } from '../demo/models.ts'

/** Takes the place of a disk with weights, because `demo/sealed` has no weights. */
export type SealedModels = {
  /** SHA-256 over the list of sources, hex. */
  readonly rootHash: string
  /** The measured configuration, in Tinfoil's form. */
  readonly config: string
}

const DEMO_FOLDER = join(import.meta.dirname, '../demo')

/**
 * Hashes every TypeScript file of src/local/demo, because these files choose the answers. The
 * hashed list has lines of `<SHA-256 hex>  <name>`, sorted by name. For a real disk, dm-verity
 * makes the root hash.
 */
export async function hashSealedModels(): Promise<SealedModels> {
  const names = (await readdir(DEMO_FOLDER)).filter((name) => name.endsWith('.ts')).sort()
  const files = await Promise.all(names.map((name) => readFile(join(DEMO_FOLDER, name))))
  const list = files.map((bytes, index) => `${sha256(bytes)}  ${names[index]}\n`).join('')
  const rootHash = sha256(Buffer.from(list))
  const bytes = files.reduce((sum, { length }) => sum + length, 0)
  const [sealed] = TEE_MODELS
  const config = `models:
  # A demonstration: this is the hash of the sources that answer. There are no weights.
  - name: "${sealed}"
    repo: "affidavit-development/demo@sources"
    mpk: "${rootHash}_${bytes}_00000000-0000-0000-0000-000000000000"
`
  return { rootHash, config }
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}
