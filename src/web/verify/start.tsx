import './verify.css'
import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentExpectations } from './development-expectations.ts'
import { VerifyPage } from './verify-page.tsx'

void takeDevelopmentExpectations().then(() => showPage(<VerifyPage />))
