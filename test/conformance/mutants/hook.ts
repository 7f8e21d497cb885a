import { registerHooks } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { mutate } from './mutate.ts'
import './switch.ts'

/*
 * Loaded before anything else (node --import): every source of attestation/, and the one of the
 * command line that checks a record's document, is changed as it is loaded. No file is written.
 */

const ROOT = join(import.meta.dirname, '../../..')

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context)
    if (!url.startsWith('file:') || loaded.source === undefined || loaded.source === null)
      return loaded
    const file = fileURLToPath(url).slice(ROOT.length + 1)
    const changed = mutate(file, Buffer.from(loaded.source as Uint8Array).toString())
    return changed === null ? loaded : { ...loaded, source: changed }
  },
})
