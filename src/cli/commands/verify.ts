import type { Command } from 'commander'
import type { VerifyOptions } from '../evidence/verify-source.ts'
import { addBundleOptions, addGatewayOptions } from '../options.ts'

/**
 * Adds `verify SOURCE`, which checks evidence by itself; README.md of src/cli says what its outcome
 * means.
 */
export function registerVerify(program: Command): void {
  const command = program
    .command('verify')
    .description(
      'check an evidence bundle or a record: hashes, signature, receipt, log, anchor, who holds the key',
    )
    .argument('<source>', "a file, an http(s) URL, - for standard input, or a completion's hash")
    .option('--request <file>', 'the body that was sent: the evidence must be of this request')
    .option(
      '--answer <file>',
      'the answer that came, JSON or a kept stream, or a saved proof: the evidence must be of it',
    )
    .option(
      '--idempotent',
      'the call was sent with an Idempotency-Key: its stream may be a repetition, cut otherwise',
    )
    .option('--json', 'print one JSON object')
  addBundleOptions(addGatewayOptions(command))
    .addHelpText('after', HELP)
    .action(async (source: string, options: VerifyOptions) => {
      const { verifySource } = await import('../evidence/verify-source.ts')
      const { output, warning, exitCode } = await verifySource(source, options)
      process.stdout.write(output)
      if (warning !== null) process.stderr.write(`${warning}; the rest was checked\n`)
      process.exitCode = exitCode
    })
}

const HELP = `
Examples:
  affidavit verify evidence.json --expect expect.json            a bundle, by what your vendor told you to expect
  affidavit verify proof.json --expect expect.json               a proof that the client or the proxy saved
  affidavit verify evidence.json --expect expect.json --rpc URL  the same, and that the chain has its block
  affidavit verify HASH --url https://gateway.example --expect expect.json

  affidavit verify proofs/session-….jsonl --expect expect.json   every call of one run of the proxy

The source is an evidence bundle, a proof that the client saved, a session of the proxy, a record, a page of the history, or (with
--request) an answer or event stream as it came. With a completion's hash, its bundle is fetched from the gateway at --url, which must give
the one of this hash: anything else is refused.
With --request and --answer, what you sent and got is compared with the evidence; a difference is INVALID. Evidence of
an encrypted call has no content: these files, or the saved proof as --answer, make it whole.
What was asked and said is printed as the evidence has it, cut to a bounded length and escaped.
The verdict: VERIFIED, all that is needed was checked; CONSISTENT, nothing failed, but it says what was not
checked; INVALID, something failed: trust nothing of it.
What is not said is not checked, and never counts as passed: expected measurements (--expect; --release with
--release-key, or --pcr), the expected boot configuration (--expect, --configuration), the chain (--rpc). A bundle's
attestation document is always verified, under AWS's root or --root; a record's when --release, --pcr,
--any-measurement or --root is given. Both at its own time, with which releases are compared, too.
An answer that was cut (outcome client_disconnected or upstream_error) is CONSISTENT at best, unless
--allow-outcome names its outcome.
A record, an answer or a stream by itself is CONSISTENT at best: it has neither the boot configuration nor the anchor.
Exit codes: 0 nothing failed, 1 a check failed (or less than --require), or the gateway gave other evidence, 2 usage,
3 not decided: no such file, no answer, no access, or the chain was not reached.`
