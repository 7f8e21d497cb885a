import type { Command } from 'commander'
import type { OpenVerifier, VerifierOptions } from '../evidence/evidence-page.ts'

export function registerVerifier(program: Command, openVerifier: OpenVerifier): void {
  program
    .command('verifier')
    .summary('print the digest of the page that checks evidence, or save the page')
    .description(
      'Print version, commit and digest of the page that checks evidence in a browser. A page ' +
        'that was saved names the same, if this version made it.',
    )
    .option('--output <file>', 'also write the page there, without evidence')
    .option('--json', 'print one JSON object')
    .addHelpText('after', HELP)
    .action(async (options: VerifierOptions) => {
      const { printVerifier } = await import('../evidence/evidence-page.ts')
      await printVerifier(openVerifier, options)
    })
}

const HELP = `
The digest is the SHA-256 of a saved page without its lines of data. To compute it of any saved page:
  LC_ALL=C grep -avE '^<script type="application/json" id="(made-by|evidence)">[^<]*</script>$' FILE.html | sha256sum`
