#!/usr/bin/env node
import { mkdirSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

cacheCompiledCode(join(import.meta.dirname, '../../node_modules/.cache/affidavit'))
// From here on, the compiled form of loaded code is cached.
const { runCommandLine } = await import('./command-line.ts')
const { createProgram } = await import('./program.ts')
await runCommandLine(createProgram())

/**
 * Makes the next run take a third less time. A user who can write to the cache can also change the
 * program beside the cache, so the cache adds no risk.
 */
function cacheCompiledCode(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    enableCompileCache(folder)
  } catch {
    // Without write access, the command runs without the cache.
  }
}
