#!/usr/bin/env node
import { mkdirSync } from 'node:fs'
import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

cacheCompiledCode(join(import.meta.dirname, '../../node_modules/.cache/affidavit'))
// What is loaded from here on is kept compiled.
const { runCommandLine } = await import('./command-line.ts')
const { createProgram } = await import('./program.ts')
await runCommandLine(createProgram())

/**
 * Compiled code of the call before takes a third off the time of the next. It is beside the
 * packages: a user who can write there can change what runs anyway.
 */
function cacheCompiledCode(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    enableCompileCache(folder)
  } catch {
    // A user who may not write there starts without it.
  }
}
