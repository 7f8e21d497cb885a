import { createProgram } from '#src/cli/program.ts'
import { activate } from './switch.ts'

/*
 * Our command line with one check skipped, as a program: node --import ./hook.ts skip.ts KEY WORDS…
 * A key is as in switch.ts, such as `check anchor time` or `code root_untrusted`.
 */

const [key = '', ...words] = process.argv.slice(2)
activate(key)
await createProgram().parseAsync(words, { from: 'user' })
