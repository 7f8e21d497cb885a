import { registerHooks } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { mutate } from './mutate.ts'
import './switch.ts'

/*
 * Loaded before all other modules (node --import). It changes sources as they are loaded: all of
 * attestation/, and the command line's source that checks a record's document. It writes no file.
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
