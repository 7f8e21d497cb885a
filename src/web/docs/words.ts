/**
 * The terms of the field. `unused`: what no text for users says instead, each in backticks, where
 * `…` stands for at most three words. `test/house/plain-words.ts` holds texts to it.
 */
export const TERMS: readonly {
  readonly term: string
  readonly means: string
  readonly unused: string
}[] = [
  {
    term: 'enclave',
    means: 'the isolated machine that runs the verifier; its operator cannot read its memory',
    unused: '',
  },
  {
    term: 'notary',
    means: 'the account of one enclave, created at its boot; its address is also the id of its log',
    unused: '',
  },
  {
    term: 'API',
    means: 'the form of a call: chat, Responses or Messages',
    unused: '`dialect`',
  },
  {
    term: 'completion',
    means: 'one answered call, with its request',
    unused: '',
  },
  {
    term: 'record',
    means: 'the stored data of a completion: request, response, receipt, signature',
    unused: '',
  },
  {
    term: 'receipt',
    means: 'the enclave’s statement about a completion beyond its hash: provider, times, outcome',
    unused: '',
  },
  {
    term: 'log, leaf',
    means: 'a notary’s append-only Merkle tree; a receipt’s hash in the tree',
    unused: '',
  },
  {
    term: 'signed tree head',
    means: 'the size and root of a log, signed by its notary; “head” for short',
    unused: '`signed head`, `signed root`',
  },
  {
    term: 'anchor',
    means: 'the transaction that sends a signed tree head to the contract',
    unused: '',
  },
  {
    term: 'pending',
    means: 'of an anchor: not in a block of the chain yet',
    unused:
      '`unmined`, `not mined`, `not yet mined`, `anchor … wait`, `waiting anchor`, `anchor in flight`',
  },
  {
    term: 'attestation document',
    means: 'AWS’s signed statement of which code runs in the enclave and which key it holds',
    unused: '',
  },
  {
    term: 'measurement, PCR',
    means:
      'a hash of the code that an enclave booted: PCR0 the image, PCR1 the kernel, PCR2 the application',
    unused: '',
  },
  {
    term: 'boot configuration',
    means:
      'the settings of an enclave: providers, trusted CAs, chain, contract; their digest is in the document',
    unused: '',
  },
  {
    term: 'release',
    means:
      'a signed statement that an image’s measurements are acceptable, with the first and last time',
    unused: '',
  },
  {
    term: 'policy',
    means:
      'whom a checker trusts: enclaves (releases or measurements, boot configurations, roots), providers',
    unused: '`expectation`, `expected file`',
  },
  {
    term: 'verify',
    means: 'to check evidence: signatures, hashes, proofs and the policy',
    unused: '`judge`, `judgement`',
  },
  {
    term: 'appraise',
    means: 'to decide whether a policy accepts verified evidence',
    unused: '',
  },
  {
    term: 'evidence',
    means:
      'one file with all data for an offline check of one call, or of several, a call per line',
    unused: '',
  },
  {
    term: 'valid, invalid',
    means: 'of a link in a chain of certificates, calls or evidence: its check passed, or failed',
    unused: '`good link`, `broken link`, `link holds`',
  },
  {
    term: 'create',
    means: 'to bring a key, an account or a node into being',
    unused:
      '`make … key`, `made … key`, `key … made`, `make … account`, `made … account`, `account … made`, `make … node`, `made … node`',
  },
  {
    term: 'expires',
    means: 'of a certificate, a key or a budget: it is not valid after this time',
    unused:
      '`key end`, `key … ended`, `ended key`, `certificate end`, `certificate … ended`, `budget end`',
  },
  {
    term: 'node, agent',
    means:
      'a contributed machine that serves models; the program on this machine that dials the gateway',
    unused: '',
  },
  {
    term: 'relayer',
    means: 'the account that pays for anchors',
    unused: '',
  },
]

/** What each verdict and state of a check means, and what the reader should do. */
export const VERDICTS: readonly {
  readonly word: string
  readonly tone: 'good' | 'open' | 'bad' | 'warn'
  readonly means: string
  readonly next: string
}[] = [
  {
    word: 'verified',
    tone: 'good',
    means:
      'All necessary checks passed: an enclave that you accept signed exactly this question and this answer, and a transaction in a block records them. Only a chain endpoint shows that the chain has this block.',
    next: 'Rely on what was asked, what was answered and by which provider; on the time only if “block on chain” passed. It does not show that the answer is true.',
  },
  {
    word: 'incomplete',
    tone: 'open',
    means:
      'No check failed, but a necessary check was not made, most often because you did not say which enclaves you accept.',
    next: 'Give the `policy.json` of your vendor and check again. Until then, any person could have signed it.',
  },
  {
    word: 'invalid',
    tone: 'bad',
    means: 'A check failed: the evidence was changed or forged.',
    next: 'Do not rely on it. Ask for it again at the place it came from.',
  },
  {
    word: 'not accepted',
    tone: 'warn',
    means:
      'Nothing contradicts the evidence, but your policy does not accept it: it is of another enclave, release, root or provider. The first line says what was expected, and what was found.',
    next: 'Do not rely on it. If it should be accepted, ask your vendor for a newer policy.',
  },
  {
    word: 'not checked',
    tone: 'open',
    means:
      'The check was not made, because something for it is missing: your policy, the question and the answer, or a view of the chain. It never counts as passed.',
    next: 'Give what the line names, such as `policy.json` or the endpoint of a chain, and check again.',
  },
]
