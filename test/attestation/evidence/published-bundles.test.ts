import { judgePublished } from '../judge-published.ts'

// Faults of the document itself are judged by test/conformance/documents.test.ts.
judgePublished(
  /^bundle\/(any|attestation-(key|time)|boot|cut|expected|finished|measurements|messages|no-|nothing|provider\/|recorded|second|three|whole|with-|written)/,
  38,
)
