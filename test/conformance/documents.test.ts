import { judgePublished } from '../attestation/judge-published.ts'

// The other kinds are judged in test/attestation, each beside the tests of its rules.
judgePublished(/^document\/refused\//, 230)
